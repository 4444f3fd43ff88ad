//go:build linux

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
	"strings"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// dockerRun is docker run with the restrictions of a plan.
type dockerRun struct {
	class spec.Class
	// user and ulimits are what the run adds to its class.
	user    string
	ulimits []spec.Ulimit
	// seccomp is the path of the class's profile.
	seccomp string
	// args are all restrictions, but for the mounts.
	args []string
	// name is the value of the label of every container, and begins the names of those that
	// have one.
	name string
}

// label is on every container that the benchmark creates with docker.
const label = "org.evalbox.bench"

// newDocker translates the plan of a run into the arguments of docker run.
func (b *bench) newDocker() (d dockerRun, err error) {
	d = dockerRun{class: b.plan.Class, ulimits: b.plan.Class.Ulimits, name: filepath.Base(b.dir)}
	// The plan says how the user is chosen, and the container has the one that was.
	user := b.held.oci.Process.User
	d.user = fmt.Sprintf("%d:%d", user.UID, user.GID)
	if size := b.plan.Job.FileSize; size != nil {
		d.ulimits = append(slices.Clip(d.ulimits), spec.Ulimit{Name: "fsize", Soft: size.Soft, Hard: size.Hard})
	}
	if d.seccomp, err = seccompFile(d.class.Seccomp); err != nil {
		return dockerRun{}, err
	}
	d.args, err = d.arguments()
	return d, err
}

// seccompFile returns the path of the plan's profile, for docker run.
func seccompFile(profile spec.Seccomp) (string, error) {
	path, err := filepath.Abs(filepath.Join("..", "sandbox", "spec", "seccomp.json"))
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("the seccomp profile %s: %w (run this in hack)", profile.Name, err)
	}
	sum := sha256.Sum256(text)
	if have := hex.EncodeToString(sum[:]); have != profile.SHA256 {
		return "", fmt.Errorf("%s has SHA-256 %s, the plan says %s: build the CLI again", path, have, profile.SHA256)
	}
	return path, nil
}

// arguments translates every restriction of a class into arguments of docker run. It
// fails for a restriction without a translation: the two sides would no longer do the
// same.
func (d dockerRun) arguments() ([]string, error) {
	class := d.class
	if class.GPUs.Any() || class.IPC != "private" || !class.ReadOnlyRoot || !class.NoNewPrivileges || len(class.Masks) > 0 {
		return nil, errors.New("the plan has a part that this benchmark cannot say to docker run")
	}
	args := []string{
		"run", "--rm", "--init", "--read-only", "--ipc", class.IPC, "--network", class.Network,
		"--user", d.user, "--workdir", class.WorkDir, "--runtime", class.Runtime, "--hostname", "sandbox",
		"--security-opt", "no-new-privileges", "--security-opt", "seccomp=" + d.seccomp,
		"--memory", strconv.FormatInt(class.Cgroup.MemoryBytes, 10),
		"--memory-swap", strconv.FormatInt(class.Cgroup.MemoryBytes+class.Cgroup.SwapBytes, 10),
		"--cpus", strconv.FormatFloat(float64(class.Cgroup.NanoCPUs)/1e9, 'f', -1, 64),
		"--pids-limit", strconv.FormatInt(class.Cgroup.PIDs, 10),
		"--shm-size", strconv.FormatInt(class.Cgroup.ShmBytes, 10),
		"--no-healthcheck", "--stop-signal", "SIGTERM", "--cgroupns", "private",
		"--log-driver", class.Log.Driver, "--label", label + "=" + d.name,
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
	for _, u := range d.ulimits {
		args = append(args, "--ulimit", fmt.Sprintf("%s=%d:%d", u.Name, u.Soft, u.Hard))
	}
	for _, t := range class.Tmpfs {
		args = append(args, "--tmpfs", fmt.Sprintf("%s:rw,nosuid,nodev,exec,size=%d,nr_inodes=%d,mode=1777",
			t.Target, t.SizeBytes, t.Inodes))
	}
	for _, b := range class.Binds {
		if b.Role != spec.RoleInput && b.Role != spec.RoleFinal {
			return nil, fmt.Errorf("no directory for the mount %s", b.Target)
		}
	}
	for _, pair := range class.Env {
		args = append(args, "--env", pair)
	}
	return args, nil
}

// run returns the arguments of docker that run a command with these directories. A container
// without a name gets one from the engine.
func (d dockerRun) run(input, final, name string, command ...string) []string {
	args := slices.Clone(d.args)
	sources := map[string]string{spec.RoleInput: input, spec.RoleFinal: final}
	for _, b := range d.class.Binds {
		mount := fmt.Sprintf("type=bind,src=%s,dst=%s,bind-propagation=rprivate,bind-nonrecursive", sources[b.Role], b.Target)
		if b.ReadOnly {
			mount += ",readonly"
		}
		args = append(args, "--mount", mount)
	}
	if name != "" {
		args = append(args, "--name", name)
	}
	return append(append(args, "--entrypoint", command[0], d.class.Image.ID), command[1:]...)
}

func (b *bench) dockerSide(ctx context.Context, t task, final string) (sample, error) {
	return timed(exec.CommandContext(ctx, "docker", b.docker.run(b.input(t), final, "", t.program...)...))
}

// pythonSide lets python3-docker run a container with the restrictions of the plan.
func (b *bench) pythonSide(_ context.Context, t task, final string) (sample, error) {
	seccomp, err := os.ReadFile(b.docker.seccomp)
	if err != nil {
		return sample{}, err
	}
	return b.python.ask(map[string]any{
		"class": b.docker.class, "user": b.docker.user, "ulimits": b.docker.ulimits, "seccomp": string(seccomp),
		"sources": map[string]string{spec.RoleInput: b.input(t), spec.RoleFinal: final},
		"command": t.program, "labels": map[string]string{label: b.docker.name},
	})
}

// input returns the directory of a task's inputs.
func (b *bench) input(t task) string {
	if t.input != "" {
		return t.input
	}
	return b.empty
}

// removeContainers removes what docker run has left behind, and what waits for docker exec.
func (b *bench) removeContainers() error {
	ctx := context.Background()
	out, err := exec.CommandContext(ctx, "docker", "ps", "--all", "--quiet", "--filter", "label="+label+"="+b.docker.name).Output()
	ids := strings.Fields(string(out))
	if err != nil || len(ids) == 0 {
		return err
	}
	return exec.CommandContext(ctx, "docker", append([]string{"rm", "--force"}, ids...)...).Run()
}
