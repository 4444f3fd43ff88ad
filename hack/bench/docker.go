package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// docker is the other side: docker run with the restrictions of a plan.
type docker struct {
	// args has all restrictions; image is the ID of the plan's image.
	args  []string
	image string
}

// newDocker translates the plan of a run into the arguments of docker run.
func newDocker(ctx context.Context, c cli, dir string) (docker, error) {
	plan, err := c.plan(ctx, "true")
	if err != nil {
		return docker{}, err
	}
	profile, err := seccompFile(plan.Class.Seccomp)
	if err != nil {
		return docker{}, err
	}
	sources := map[string]string{}
	for _, role := range []string{spec.RoleInput, spec.RoleFinal} {
		sources[role] = filepath.Join(dir, role)
		if err := os.Mkdir(sources[role], 0o755); err != nil {
			return docker{}, err
		}
	}
	args, err := runArgs(plan, profile, sources)
	return docker{args: args, image: plan.Class.Image.ID}, err
}

// seccompFile returns the path of the plan's profile, for docker run.
func seccompFile(profile spec.Seccomp) (string, error) {
	path, err := filepath.Abs(filepath.Join("sandbox", "spec", "seccomp.json"))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the seccomp profile %s: %w (run this from the root of the repository)", profile.Name, err)
	}
	sum := sha256.Sum256(text)
	if have := hex.EncodeToString(sum[:]); have != profile.SHA256 {
		return "", fmt.Errorf("%s has SHA-256 %s, the plan says %s: build the CLI again", path, have, profile.SHA256)
	}
	return path, nil
}

// runArgs translates every restriction of a class into arguments of docker run. It
// fails for a restriction without a translation: the two sides would no longer do the
// same.
func runArgs(plan spec.Spec, seccomp string, sources map[string]string) ([]string, error) {
	class := plan.Class
	if class.GPUs.Any() || class.IPC != "private" || !class.ReadOnlyRoot || !class.NoNewPrivileges {
		return nil, errors.New("the plan has a part that this benchmark cannot say to docker run")
	}
	memory := strconv.FormatInt(class.Cgroup.MemoryBytes, 10)
	args := []string{
		"run", "--rm", "--init", "--read-only", "--ipc", class.IPC, "--network", class.Network,
		"--user", class.User, "--workdir", class.WorkDir, "--runtime", class.Runtime, "--hostname", "sandbox",
		"--security-opt", "no-new-privileges", "--security-opt", "seccomp=" + seccomp,
		"--memory", memory, "--memory-swap", strconv.FormatInt(class.Cgroup.MemoryBytes+class.Cgroup.SwapBytes, 10),
		"--cpus", strconv.FormatFloat(float64(class.Cgroup.NanoCPUs)/1e9, 'f', -1, 64),
		"--pids-limit", strconv.FormatInt(class.Cgroup.PIDs, 10),
		"--shm-size", strconv.FormatInt(class.Cgroup.ShmBytes, 10),
		"--no-healthcheck", "--stop-signal", "SIGTERM", "--cgroupns", "private",
		"--log-driver", class.Log.Driver,
	}
	if class.Cgroup.Version == 1 {
		args = append(args, "--memory-swappiness", "0")
	}
	for _, key := range slices.Sorted(maps.Keys(class.Log.Options)) {
		args = append(args, "--log-opt", key+"="+class.Log.Options[key])
	}
	for _, capability := range class.CapDrop {
		args = append(args, "--cap-drop", capability)
	}
	for _, u := range class.Ulimits {
		args = append(args, "--ulimit", fmt.Sprintf("%s=%d:%d", u.Name, u.Soft, u.Hard))
	}
	for _, t := range class.Tmpfs {
		args = append(args, "--tmpfs", fmt.Sprintf("%s:rw,nosuid,nodev,exec,size=%d,nr_inodes=%d,mode=1777",
			t.Target, t.SizeBytes, t.Inodes))
	}
	for _, b := range class.Binds {
		source := sources[b.Role]
		if source == "" {
			return nil, fmt.Errorf("no folder for the mount %s", b.Target)
		}
		mount := fmt.Sprintf("type=bind,src=%s,dst=%s,bind-propagation=rprivate,bind-nonrecursive", source, b.Target)
		if b.ReadOnly {
			mount += ",readonly"
		}
		args = append(args, "--mount", mount)
	}
	for _, pair := range class.Env {
		args = append(args, "--env", pair)
	}
	return args, nil
}

// command returns a docker run of one command in the image of the plan. The container
// has a name, so that it can be removed even if the client is killed.
func (d docker) command(ctx context.Context, command ...string) *exec.Cmd {
	name := fmt.Sprintf("evalbox-bench-%d-%d", os.Getpid(), time.Now().UnixNano())
	args := slices.Concat(d.args, []string{"--name", name, "--entrypoint", command[0], d.image}, command[1:])
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Cancel = func() error {
		// Killing the client alone would leave the container running.
		remove := exec.CommandContext(context.WithoutCancel(ctx), "docker", "rm", "--force", name)
		return errors.Join(remove.Run(), cmd.Process.Kill())
	}
	cmd.WaitDelay = waitDelay
	return cmd
}
