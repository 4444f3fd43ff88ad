package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// mmdebstrapGrace is how long mmdebstrap may clean up after itself before it is
// killed.
const mmdebstrapGrace = 20 * time.Second

// debianKeyring is where Debian and Ubuntu keep the keys of Debian's archive.
const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Mmdebstrap is the [RootFunc] that runs the program of this name, from the
// package sources and through the proxy that apt on this machine is set to. It
// needs root, because only root may give files away. When ctx ends, mmdebstrap
// and all its children are stopped.
func Mmdebstrap(ctx context.Context, b Bootstrap, w io.Writer, progress func(line string)) (err error) {
	if os.Geteuid() != 0 {
		return &CannotMakeError{
			Reason: "making a root file system needs root",
			hint:   "sudo sandbox image ensure (only making the image needs root, running programs does not)",
		}
	}
	path, err := exec.LookPath("mmdebstrap")
	if err != nil {
		return &CannotMakeError{Reason: "mmdebstrap is not installed", hint: "apt-get install mmdebstrap"}
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
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = mmdebstrapGrace
	err = cmd.Run()
	if cmd.Process != nil { // nothing of the group may outlive this call
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // usually: no such process
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("mmdebstrap: %w\n%s", err, log.String())
	}
	return nil
}

// removeRoot removes the folder that mmdebstrap worked in, which is empty unless
// it was killed. It touches nothing while something is mounted there: that could
// be this machine's /dev.
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

// aptSources returns the sources of a suite that apt on this machine uses. It
// leaves the choice to mmdebstrap when there are none, as on other distributions.
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

// aptProxies returns apt's proxies as environment variables. mmdebstrap does
// not read this machine's configuration of apt.
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
