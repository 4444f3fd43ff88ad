package images

import (
	"fmt"
	"strings"
)

// customize runs in mmdebstrap after the packages are installed; $1 is the root
// file system. It records the packages and takes off the traces of this machine
// and the set-user-ID bits, which no run honours. Then it compiles all Python
// code at once and on all processors: at run time the root file system is
// read-only, and a compiled file that is never compared with its source is the
// fastest to load. A file that Python 3 cannot compile (there are examples for
// other versions) is left as it is.
const customize = `set -eu
mkdir -p "$1/usr/share/evalbox"
chroot "$1" dpkg-query --show > "$1/usr/share/evalbox/packages.txt"
rm -f "$1/etc/apt/sources.list" "$1/etc/apt/sources.list.d/"* "$1/etc/resolv.conf" "$1/etc/hostname"
find "$1" -xdev -type f -perm /6000 -exec chmod ug-s {} +
if [ -x "$1/usr/bin/python3" ]; then
  echo "I: compiling Python code..." >&2
  chroot "$1" sh -c 'python3 -m compileall -q -f -j0 --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.[0-9]*' >/dev/null 2>&1 || true
fi`

// standIn runs in mmdebstrap when dpkg works and before anything else is
// installed. It installs an empty package of the given name; $1 is the root file
// system.
const standIn = `set -eu
mkdir -p "$1/tmp/stand-in/DEBIAN"
printf '%%s\n' 'Package: %[1]s' 'Version: 9999' 'Architecture: all' 'Maintainer: evalbox' \
  'Description: stand-in for %[1]s, which no program needs' > "$1/tmp/stand-in/DEBIAN/control"
chroot "$1" dpkg-deb --build /tmp/stand-in /tmp/stand-in.deb >/dev/null
chroot "$1" dpkg --install /tmp/stand-in.deb >/dev/null
rm -r "$1/tmp/stand-in" "$1/tmp/stand-in.deb"`

// mmdebstrapArgs returns the arguments that write the root file system to
// standard output. Sources are lines of a sources.list; none means the
// program's own choice for the suite.
func mmdebstrapArgs(b Bootstrap, sources []string) []string {
	args := []string{
		"--mode=root", "--format=tar", "--variant=" + b.Variant,
		"--include=" + strings.Join(b.Packages, ","),
		// The result is thrown away when the machine crashes.
		"--dpkgopt=force-unsafe-io",
		// Without it no package compiles its own Python code, see customize.
		"--dpkgopt=path-exclude=/usr/bin/py3compile",
		// The engine makes its own devices.
		"--skip=output/dev",
	}
	for _, pattern := range b.Exclude {
		args = append(args, "--dpkgopt=path-exclude="+pattern)
	}
	for _, name := range b.StandIns {
		args = append(args, "--essential-hook="+fmt.Sprintf(standIn, name))
	}
	args = append(args, "--customize-hook="+customize, b.Suite, "-")
	return append(args, sources...)
}

// sourcesFor picks those of the machine's package sources that hold a suite, as
// lines of a sources.list. Targets are lines "URI SUITE COMPONENT", as apt
// prints them; keyring is the path of the key file, empty for apt's own.
func sourcesFor(suite, targets, keyring string) []string {
	wanted := map[string]bool{suite: true, suite + "-updates": true, suite + "-security": true}
	option := ""
	if keyring != "" {
		option = fmt.Sprintf("[signed-by=%s] ", keyring)
	}
	var lines []string
	seen := map[string]bool{}
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) != 3 || !wanted[f[1]] || f[2] != "main" || seen[line] {
			continue
		}
		seen[line] = true
		lines = append(lines, fmt.Sprintf("deb %s%s %s main", option, f[0], f[1]))
	}
	return lines
}
