#!/bin/sh
# Runs a part of the project's own tests through `sandbox gate`: with the Go of this
# machine and the modules that they need, read-only and pinned by their hashes, and
# without any network. The evidence is kept in .cache/gate/out.
#
#   hack/gate.sh SANDBOX    the command, such as bin/sandbox
set -eu

SANDBOX=$1
# Packages that need no engine and read nothing outside of the repository.
PACKAGES="./result/... ./policy/... ./harness/gate/evidence ./harness/gate/judge ./harness/gate/spec ./harness/gate/normalize ./harness/gate/testreport ./harness/gate/report ./harness/gate/attest ./harness/gate/compare"
WISH=gate.wish.yaml # it must lie above what it is about; git ignores it
CACHE=.cache/gate

# What the gates find below /host/mod: the sources of the modules and what go asks about
# all others. Go would look for them in a network that is not there.
mods=$(go env GOMODCACHE)
rm -rf "$CACHE/mod"
mkdir -p "$CACHE/mod"
# shellcheck disable=SC2086 # several packages
go list -deps -test -f '{{with .Module}}{{if not .Main}}{{.Dir}}{{end}}{{end}}' $PACKAGES | sort -u |
	while read -r dir; do
		case $dir in "$mods"/*) (cd "$mods" && tar -cf - "${dir#"$mods"/}") | tar -xf - -C "$CACHE/mod" ;; esac
	done
(cd "$mods" && find cache/download \( -name '*.mod' -o -name '*.info' -o -name '*.ziphash' \) -print0 | tar --null -cf - -T -) |
	tar -xf - -C "$CACHE/mod"
chmod -R u+w "$CACHE/mod"

cat >"$WISH" <<YAML
schema: evalbox/wish/v1
name: evalbox
gate_commands:
  - cmd: go test $PACKAGES
    timeout: 15m
  - {cmd: go vet ./result/... ./policy/..., kind: check, timeout: 10m}
exclude: [bin, .cache, $WISH, gate.wish.lock.json]
env:
  CGO_ENABLED: "0"
  GOCACHE: /tmp/go-build
  GOMODCACHE: /host/mod
  GOPROXY: "off"
  GOTOOLCHAIN: local
limits: {memory: 6GiB}
toolchain:
  - {source: $(go env GOROOT), target: /host/go}
  - {source: $PWD/$CACHE/mod, target: /host/mod}
YAML

"$SANDBOX" gate seal "$WISH" -o gate.wish.lock.json
"$SANDBOX" gate run gate.wish.lock.json --offline --output "$CACHE/out" --replace --junit "$CACHE/junit.xml" --summary "$CACHE/summary.md"
"$SANDBOX" gate verify "$CACHE/out"
