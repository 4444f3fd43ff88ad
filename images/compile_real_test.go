package images_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/build"
	"github.com/evalbox/evalbox/images/pull"
)

// compile builds and runs a program of C, of C++ and of Go with C, through make.
const compile = `set -eu
mkdir /tmp/src && cd /tmp/src && export HOME=/tmp
cat > c.c <<'EOF'
#include <linux/limits.h>
#include <stdio.h>
int main(void) { printf("C %d\n", PATH_MAX); }
EOF
cat > cc.cc <<'EOF'
#include <iostream>
int main() { std::cout << "C++" << std::endl; }
EOF
cat > go.go <<'EOF'
package main

// #include <stdlib.h>
import "C"

func main() { println("cgo", int(C.abs(-7))) }
EOF
printf 'all: c cc\n\t./c\n\t./cc\n\tgo run go.go\n' > Makefile
make
test ! -e /usr/share/doc/make
`

// TestEngineOwnPackagesCompile: an image with compilers has the files that they need, although the catalog
// excludes them from its own packages.
func TestEngineOwnPackagesCompile(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("a root file system of Debian packages takes a minute, and root")
	}
	t.Parallel()
	eng := engine(t)
	debian, _ := shipped(t).Lookup("debian")
	cat, err := images.LoadCatalog([]byte(fmt.Sprintf(`
schema: evalbox/images/v1
default: small
images:
  small:
    description: the shipped image without its packages
    base:
      bootstrap:
        suite: bookworm
        variant: minbase
        epoch: 2026-01-01T00:00:00Z
        packages: [python3]
        exclude: ["%s"]
    dockerfile: Dockerfile.runner
    dockerfile_sha256: %s
`, strings.Join(debian.Base.Bootstrap.Exclude, `", "`), debian.DockerfileSHA256)), "test.yaml")
	require.NoError(t, err)
	var progress bytes.Buffer
	made, err := build.Make(t.Context(), eng, cat, build.Own{
		Name: fmt.Sprintf("test-compile-%d", os.Getpid()), Debian: []string{"gcc", "g++", "libc6-dev", "make", "golang-go"},
	}, build.Options{Dockerfile: evalbox.DockerfileRunner, Pull: pull.Options{Progress: &progress}})
	require.NoError(t, err, "%s", &progress)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := eng.ImageRemove(ctx, made.Reference, image.RemoveOptions{PruneChildren: true})
		assert.NoError(t, err)
	})
	out, code := run(t, eng, made.ID, "sh", "-c", compile)
	assert.Zero(t, code, "%s", out)
	for _, want := range []string{"C 4096\n", "C++\n", "cgo 7\n"} {
		assert.Contains(t, out, want)
	}
}
