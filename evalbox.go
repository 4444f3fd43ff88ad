// Package evalbox holds the one file of the repository root that the programs
// need at run time. The product is in the folders below: start with
// [github.com/evalbox/evalbox/sandbox] (run a program) and
// [github.com/evalbox/evalbox/result] (what happened).
package evalbox

import _ "embed" // for go:embed

// DockerfileRunner is the text of Dockerfile.runner, through which every image
// of the catalog is built. Do not change it at run time.
//
//go:embed Dockerfile.runner
var DockerfileRunner string
