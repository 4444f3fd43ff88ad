// Package docs holds the pages that `sandbox help TOPIC` shows.
package docs

import "embed"

// Pages are the pages, such as settings.md. README.md is their index.
//
//go:embed *.md guides/*.md
var Pages embed.FS
