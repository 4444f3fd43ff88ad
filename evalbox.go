// Package evalbox holds the files of the repository root that the programs need
// at run time. The product is in the folders below: start with
// [github.com/evalbox/evalbox/sandbox] (run a program) and
// [github.com/evalbox/evalbox/result] (what happened).
package evalbox

import _ "embed" // for go:embed

// DockerfileRunner is the text of Dockerfile.runner, through which every image
// of the catalog is built. Do not change it at run time.
//
//go:embed Dockerfile.runner
var DockerfileRunner string

// Requirements is the text of requirements.lock: the Python packages of the
// images on a registry base, each with its hashes, in pip's format. Do not change
// it at run time.
//
//go:embed requirements.lock
var Requirements string
