// Package docs holds the reference pages that `sandbox help TOPIC` shows.
package docs

//go:generate make -C .. reference

import "embed"

// Pages are the pages, such as settings.md.
//
//go:embed *.md
var Pages embed.FS
