package sandbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/strslice"
	"github.com/docker/go-units"
)

// Create implements [Engine].
func (e *dockerEngine) Create(ctx context.Context, spec Spec, mounts HostPaths, labels map[string]string) (string, []string, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	config, host, err := createRequest(spec, mounts, labels)
	if err != nil {
		return "", nil, err
	}
	created, err := e.api.ContainerCreate(ctx, config, host, &network.NetworkingConfig{}, nil, spec.Job.ContainerName())
	if errdefs.IsConflict(err) {
		err = fmt.Errorf("%w: %w", ErrNameTaken, err)
	}
	if err != nil {
		return "", nil, fmt.Errorf("creating container %s: %w", spec.Job.ContainerName(), engineError(ctx, err))
	}
	return created.ID, created.Warnings, nil
}

// createRequest translates a Spec into the body of Docker's create call. It is
// pure: everything that decides what a program may do passes through here and is
// compared with a golden file.
func createRequest(spec Spec, sources HostPaths, labels map[string]string) (*container.Config, *container.HostConfig, error) {
	class, job := spec.Class, spec.Job
	if !strings.HasPrefix(class.Image.ID, "sha256:") {
		return nil, nil, fmt.Errorf("creating container %s: image %q is not resolved to an ID", job.ContainerName(), class.Image.Reference)
	}
	mounts, err := bindMounts(class.Binds, sources, propagation(class.Transfer))
	if err != nil {
		return nil, nil, err
	}
	masks, err := maskMounts(class.Masks, sources, propagation(class.Transfer))
	if err != nil {
		return nil, nil, err
	}
	mounts = append(mounts, masks...)
	devices, err := deviceRequests(class.GPUs)
	if err != nil {
		return nil, nil, fmt.Errorf("creating container %s: %w", job.ContainerName(), err)
	}
	grace := int(job.GraceSeconds)
	command := slices.Concat(class.Launcher, job.Command)
	config := &container.Config{
		Image: class.Image.ID,
		// The whole command stands here, so that an entry point of the image
		// cannot put itself in front of it.
		Entrypoint:   strslice.StrSlice(command[:1]),
		Cmd:          strslice.StrSlice(command[1:]),
		Env:          mergeEnv(class.Env, job.Env),
		User:         class.User,
		WorkingDir:   class.WorkDir,
		Hostname:     hostName,
		Labels:       labels,
		AttachStdout: true,
		AttachStderr: true,
		AttachStdin:  job.Stdin,
		OpenStdin:    job.Stdin,
		StdinOnce:    job.Stdin,
		Tty:          false,
		StopSignal:   "SIGTERM",
		StopTimeout:  &grace,
		Healthcheck:  &container.HealthConfig{Test: []string{"NONE"}},
	}
	host := &container.HostConfig{
		NetworkMode:    container.NetworkMode(class.Network),
		Runtime:        class.Runtime,
		Init:           &class.Init,
		ReadonlyRootfs: class.ReadOnlyRoot,
		CapDrop:        strslice.StrSlice(class.CapDrop),
		SecurityOpt:    securityOptions(class),
		IpcMode:        container.IpcMode(class.IPC),
		CgroupnsMode:   container.CgroupnsModePrivate,
		ShmSize:        class.Cgroup.ShmBytes,
		Mounts:         mounts,
		Tmpfs:          tmpfsOptions(class),
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		DNS:            class.NameServers,
		ExtraHosts:     class.Hosts,
		Sysctls:        class.Sysctls,
		LogConfig:      container.LogConfig{Type: class.Log.Driver, Config: class.Log.Options},
		Resources: container.Resources{
			Memory: class.Cgroup.MemoryBytes,
			// Docker counts memory and swap together here.
			MemorySwap:     class.Cgroup.MemoryBytes + class.Cgroup.SwapBytes,
			NanoCPUs:       class.Cgroup.NanoCPUs,
			PidsLimit:      &class.Cgroup.PIDs,
			Ulimits:        engineUlimits(class.Ulimits),
			DeviceRequests: devices,
		},
	}
	if class.Cgroup.Version == 1 {
		// Only cgroup v1 has this knob; v2 needs none once swap is off.
		host.MemorySwappiness = new(int64)
	}
	return config, host, nil
}

// securityOptions sends the seccomp profile itself. It is needed because the engine's
// own is as old as the engine.
func securityOptions(class Class) []string {
	options := []string{"seccomp=" + class.Seccomp.profile()}
	if class.NoNewPrivileges {
		options = append(options, "no-new-privileges:true")
	}
	return options
}

// bindMounts uses the API's Mounts, never Binds: Binds creates a missing source
// on the host as root, Mounts refuses it. The binds are not recursive, so that a
// file system mounted below a read-only source is not there writable.
func bindMounts(shapes []Bind, sources HostPaths, propagation mount.Propagation) ([]mount.Mount, error) {
	mounts := make([]mount.Mount, 0, len(shapes))
	for _, shape := range shapes {
		source := sources[shape.Role]
		if source == "" {
			return nil, fmt.Errorf("no host path for mount %s", shape.Target)
		}
		mounts = append(mounts, mount.Mount{
			Type: mount.TypeBind, Source: source, Target: shape.Target, ReadOnly: shape.ReadOnly,
			BindOptions: &mount.BindOptions{Propagation: propagation, NonRecursive: true},
		})
	}
	return mounts, nil
}

// maskMounts hide what the binds show. The engine mounts by depth, so that each comes
// after what it hides.
func maskMounts(masks []Mask, sources HostPaths, propagation mount.Propagation) ([]mount.Mount, error) {
	var mounts []mount.Mount
	for _, mask := range masks {
		if mask.Folder && mask.Role == "" {
			mounts = append(mounts, mount.Mount{Type: mount.TypeTmpfs, Target: mask.Target, ReadOnly: true,
				TmpfsOptions: &mount.TmpfsOptions{SizeBytes: maskBytes, Mode: 0o555}})
			continue
		}
		file, err := bindMounts([]Bind{{Role: orDefault(mask.Role, roleEmpty), Target: mask.Target, ReadOnly: true}}, sources, propagation)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, file...)
	}
	return mounts, nil
}

// maskBytes is the size of an empty folder that nobody can write.
const maskBytes = 4096

// propagation keeps what is mounted on the host later out of the container. For
// its own data folder the engine insists on the other direction only: nothing
// that a container mounts gets out.
func propagation(transfer string) mount.Propagation {
	if transfer == TransferCopy {
		return mount.PropagationRSlave
	}
	return mount.PropagationRPrivate
}

func tmpfsOptions(class Class) map[string]string {
	uid, gid, _ := strings.Cut(class.User, ":")
	options := make(map[string]string, len(class.Tmpfs))
	for _, t := range class.Tmpfs {
		// Compilers of PyTorch and Triton load code from /tmp, so it may be
		// executed; Docker's default would forbid that and set no size. The
		// owner matters because runc gives the mount the mode of the folder
		// that it covers, whatever the option says.
		options[t.Target] = fmt.Sprintf("rw,nosuid,nodev,exec,size=%d,nr_inodes=%d,mode=1777,uid=%s,gid=%s",
			t.SizeBytes, t.Inodes, uid, gid)
	}
	return options
}

func engineUlimits(ulimits []Ulimit) []*units.Ulimit {
	out := make([]*units.Ulimit, 0, len(ulimits))
	for _, u := range ulimits {
		out = append(out, &units.Ulimit{Name: u.Name, Soft: u.Soft, Hard: u.Hard})
	}
	return out
}

// mergeEnv joins environments as sorted pairs; a later one wins.
func mergeEnv(envs ...[]string) []string {
	merged := map[string]string{}
	for _, env := range envs {
		for _, pair := range env {
			name, _, _ := strings.Cut(pair, "=")
			merged[name] = pair
		}
	}
	return slices.Sorted(maps.Values(merged))
}
