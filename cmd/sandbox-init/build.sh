#!/bin/sh
# Compiles sandbox-init for every supported architecture, and records the hash of its
# sources and the versions of the compilers.
#
#   cmd/sandbox-init/build.sh [DIRECTORY]      default: sandbox/engine/wire
#   cmd/sandbox-init/build.sh notes            prints that record, compiles nothing
#
# The binaries depend only on the sources and the compilers: they contain no path, no
# time and no ELF build ID. hack/setup.sh test-tools installs both compilers.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
case ${1:-} in
notes) out= ;;
*) out=$(cd "${1:-$here/../../sandbox/engine/wire}" && pwd) ;;
esac
sources='init.c ready.c relay.c sched.c scratch.c second_stage.c waiter.c wire.c'
headers='init.h sys.h'

cd "$here"
# shellcheck disable=SC2086 # lists of words
id=$(cat $sources $headers | sha256sum | cut -d ' ' -f 1)

# compile ARCHITECTURE TOOLS [FLAG...]: -Os, because every container loads the
# binary; no unwind tables and no stack protector, because both need a C library.
compile() {
	arch=$1
	tools=$2
	shift 2
	echo "$arch $("${tools}gcc" --version | head -n 1); $("${tools}ld" --version | head -n 1)"
	[ -n "$out" ] || return 0
	# shellcheck disable=SC2086
	"${tools}gcc" -std=gnu11 -Os -Wall -Wextra -Werror -ffreestanding -fno-builtin -nostdlib -static -no-pie \
		-fno-stack-protector -fno-asynchronous-unwind-tables -fno-unwind-tables -fno-tree-loop-distribute-patterns \
		-ffunction-sections -fdata-sections -fno-ident -ffile-prefix-map="$here"=. "$@" \
		-DBUILD_ID="\"$id\"" -Wl,--build-id=none -Wl,--gc-sections -Wl,-z,noexecstack -Wl,-z,norelro \
		-o "$out/init_$arch" $sources
	"${tools}strip" --strip-all --remove-section=.comment "$out/init_$arch"
	chmod 0644 "$out/init_$arch"
}

notes=$(
	echo "sources $id"
	compile amd64 x86_64-linux-gnu- -fcf-protection=none
	compile arm64 aarch64-linux-gnu- -mno-outline-atomics
)
if [ -n "$out" ]; then
	echo "$notes" >"$out/init.build"
else
	echo "$notes"
fi
