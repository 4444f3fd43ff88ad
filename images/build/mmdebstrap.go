package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/images"
)

// mmdebstrapGrace is how long mmdebstrap may clean up after itself before it is killed.
const mmdebstrapGrace = 20 * time.Second

// debianKeyring is where Debian and Ubuntu keep the keys of Debian's archive.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Mmdebstrap is the [RootFunc] that runs the program of this name, from the package sources
// and through the proxy that apt on this machine is set to. It needs Linux, and root,
// because only root may give files away. When ctx ends, mmdebstrap and all its children are
// stopped.
func Mmdebstrap(ctx context.Context, b images.Bootstrap, w io.Writer, progress func(line string)) (err error) {
	if runtime.GOOS != "linux" {
		return images.WithHint(errors.New("a root file system is made on Linux only"),
			"run `sandbox image ensure` on a Linux machine, then carry the image over: docker save | docker load")
	}
	if os.Geteuid() != 0 {
		return images.WithHint(errors.New("making a root file system needs root"),
			"sudo sandbox image ensure (only making the image needs root, running programs does not)")
	}
	path, err := exec.LookPath("mmdebstrap")
	if err != nil {
		return images.WithHint(errors.New("mmdebstrap is not installed"), "apt-get install mmdebstrap")
	}
	tmp, err := os.MkdirTemp("", "evalbox-root-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeRoot(tmp)) }()
	if err := os.Chmod(tmp, 0o755); err != nil { // apt downloads as its own user
		return err
	}

	log := &logTail{progress: progress}
	cmd := exec.CommandContext(ctx, path, mmdebstrapArgs(b, aptSources(ctx, b.Suite))...)
	cmd.Stdout, cmd.Stderr = w, log
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "LC_ALL=C.UTF-8",
		fmt.Sprintf("SOURCE_DATE_EPOCH=%d", b.Epoch.Unix()))
	cmd.Env = append(cmd.Env, aptProxies(ctx)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ownMounts(cmd.SysProcAttr) // what it mounts goes with it, even if it is killed
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = mmdebstrapGrace
	err = cmd.Run()
	if cmd.Process != nil { // no process of the group may outlive this call
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // usually: no such process
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return bootstrapFailed(log.failed(fmt.Sprintf("mmdebstrap: %v", err)), log.String())
	}
	return nil
}

// bootstrapFailed adds a hint that follows from the messages of apt.
func bootstrapFailed(err error, log string) error {
	switch {
	case strings.Contains(log, "Unable to locate package"), strings.Contains(log, "has no installation candidate"):
		return images.WithHint(err, "check the name of the package with: apt-cache policy NAME; the suite of the image must have it")
	case strings.Contains(log, "Unmet dependencies"), strings.Contains(log, "unmet dependencies"):
		return images.WithHint(err, "leave out the package that conflicts")
	case strings.Contains(log, "Temporary failure resolving"), strings.Contains(log, "Could not connect"), strings.Contains(log, "Could not resolve"),
		strings.Contains(log, "Failed to fetch"):
		return images.WithHint(err, "the package mirror must be reachable from this machine: check it with: apt-get update")
	case strings.Contains(log, "No space left"):
		return images.WithHint(err, "make room below $TMPDIR, or set it to a directory on another disk")
	}
	return err
}

// removeRoot removes the working directory of mmdebstrap, which is empty unless mmdebstrap was
// killed. It refuses a directory with a mount below it, which could be this machine's /dev.
func removeRoot(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if strings.Contains(string(mounts), " "+dir+"/") {
		return fmt.Errorf("%s: file systems are still mounted below it, unmount them and remove it", dir)
	}
	return os.RemoveAll(dir)
}

// aptSources returns the sources of a suite that apt on this machine uses. If it returns none,
// as on other distributions, mmdebstrap chooses.
func aptSources(ctx context.Context, suite string) []string {
	targets, err := exec.CommandContext(ctx, "apt-get", "indextargets",
		"--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages").Output()
	if err != nil {
		return nil
	}
	keyring := debianKeyring
	if _, err := os.Stat(keyring); err != nil {
		keyring = ""
	}
	return sourcesFor(suite, string(targets), keyring)
}

// aptProxies returns apt's proxies as environment variables. mmdebstrap does not read this
// machine's configuration of apt.
func aptProxies(ctx context.Context) []string {
	var env []string
	for _, scheme := range []string{"http", "https"} {
		key := "Acquire::" + scheme + "::Proxy"
		out, err := exec.CommandContext(ctx, "apt-config", "dump", "--format", "%f %v%n", key).Output()
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(out)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+" "); ok && value != "" && value != "DIRECT" {
				env = append(env, scheme+"_proxy="+value)
			}
		}
	}
	return env
}

// customize runs in mmdebstrap after the packages are installed; $1 is the root file
// system. It records the packages, and removes the traces of this machine and the
// set-user-ID bits, which no run honours. Then it compiles all Python code at once and on
// all processors: at run time the root file system is read-only, and a compiled file that
// is never compared with its source is the fastest to load. A file that Python 3 cannot
// compile (there are examples for other versions) is left as it is.
const customize = `set -eu
mkdir -p "$1/usr/share/evalbox"
chroot "$1" dpkg-query --show > "$1/usr/share/evalbox/packages.txt"
rm -f "$1/etc/apt/sources.list" "$1/etc/apt/sources.list.d/"* "$1/etc/resolv.conf" "$1/etc/hostname"
find "$1" -xdev -type f -perm /6000 -exec chmod ug-s {} +
if [ -x "$1/usr/bin/python3" ]; then
  echo "I: compiling Python code..." >&2
  chroot "$1" sh -c 'python3 -m compileall -q -f -j0 --invalidation-mode unchecked-hash /usr/lib/python3 /usr/lib/python3.[0-9]*' >/dev/null 2>&1 || true
fi`

// standIn runs in mmdebstrap when dpkg works and before anything else is installed. It
// installs an empty package of the given name; $1 is the root file system.
const standIn = `set -eu
mkdir -p "$1/tmp/stand-in/DEBIAN"
printf '%%s\n' 'Package: %[1]s' 'Version: 9999' 'Architecture: all' 'Maintainer: evalbox' \
  'Description: stand-in for %[1]s, which no program needs' > "$1/tmp/stand-in/DEBIAN/control"
chroot "$1" dpkg-deb --build /tmp/stand-in /tmp/stand-in.deb >/dev/null
chroot "$1" dpkg --install /tmp/stand-in.deb >/dev/null
rm -r "$1/tmp/stand-in" "$1/tmp/stand-in.deb"`

// mmdebstrapArgs returns the arguments that write the root file system to standard output.
// Sources are lines of a sources.list; without any, mmdebstrap chooses.
func mmdebstrapArgs(b images.Bootstrap, sources []string) []string {
	args := []string{
		"--mode=root", "--format=tar", "--variant=" + b.Variant,
		"--include=" + strings.Join(b.Packages, ","),
		// The result is thrown away when the machine crashes.
		"--dpkgopt=force-unsafe-io",
		// Packages then do not compile their own Python code, see customize.
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

// sourcesFor picks those of the machine's package sources that hold a suite, as lines of a
// sources.list. Targets are lines "URI SUITE COMPONENT", as apt prints them; keyring is the
// path of the key file, empty for apt's own.
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
