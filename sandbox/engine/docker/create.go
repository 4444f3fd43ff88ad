package docker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/strslice"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/go-units"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// stopSeconds is how long `docker stop`, and a daemon that shuts down, wait before they
// kill the container. It exceeds the default grace period; the job's own is not known when
// the container is created.
const stopSeconds = 30

// createRequest translates a class into the body of Docker's create call. It is pure:
// every setting that decides what a program may do passes through here and is compared
// with a golden file.
func createRequest(class spec.Class, meta engine.Meta, init initFiles) (*container.Config, *container.HostConfig, error) {
	config, host, err := baseRequest(class, meta)
	if err != nil {
		return nil, nil, err
	}
	// Evalbox's init is the entry point. The image's own entry point does not run.
	config.Entrypoint = strslice.StrSlice{initTarget}
	config.Cmd = initArguments(class, meta)
	// Init receives its job on stdin; an open stdin also shows that the controller is
	// alive.
	config.AttachStdin, config.OpenStdin, config.StdinOnce = true, true, true
	pids := class.Cgroup.PIDs + wire.InitTasks(class.Cgroup.PIDs)
	host.PidsLimit = &pids
	host.Mounts = append(host.Mounts, init.mounts(config.NetworkDisabled, host.Mounts)...)
	if !spec.OwnKernel(class.Runtime) {
		host.Mounts = append(host.Mounts, terminals())
	}
	return config, host, nil
}

func initArguments(class spec.Class, meta engine.Meta) []string {
	arguments := wire.InitArguments(class.Cgroup.PIDs)
	if meta.Witness != "" {
		arguments = append(arguments, "-w", meta.Witness)
	}
	for _, path := range meta.Stat {
		arguments = append(arguments, "-s", path)
	}
	return arguments
}

// baseRequest builds the part that the containers of runs and helper containers share.
func baseRequest(class spec.Class, meta engine.Meta) (*container.Config, *container.HostConfig, error) {
	if !strings.HasPrefix(class.Image.ID, "sha256:") {
		return nil, nil, fmt.Errorf("creating container %s: image %q is not resolved to an ID", meta.Name, class.Image.Reference)
	}
	if class.Seccomp != spec.DefaultSeccomp() {
		return nil, nil, fmt.Errorf("creating container %s: the seccomp profile %q is not known", meta.Name, class.Seccomp.Name)
	}
	mounts, err := bindMounts(class.Binds, meta.Sources, propagation(class.Transfer))
	if err != nil {
		return nil, nil, err
	}
	masks, err := maskMounts(class.Masks, meta.Sources, propagation(class.Transfer))
	if err != nil {
		return nil, nil, err
	}
	devices, err := deviceRequests(class.GPUs)
	if err != nil {
		return nil, nil, fmt.Errorf("creating container %s: %w", meta.Name, err)
	}
	stop, noInit := stopSeconds, false
	config := &container.Config{
		Image: class.Image.ID,
		// The environment of the image and of the class. A job brings its own.
		Env:          spec.MergeEnv(class.Env),
		User:         class.User,
		WorkingDir:   class.WorkDir,
		Hostname:     spec.HostName,
		Labels:       meta.Labels,
		AttachStdout: true,
		AttachStderr: true,
		Tty:          false,
		StopSignal:   "SIGTERM",
		StopTimeout:  &stop,
		Healthcheck:  &container.HealthConfig{Test: []string{"NONE"}},
		// A network namespace with only a loopback address, and without the engine's
		// network controller, which would double the cost of a start. A runtime with its
		// own kernel gets its addresses from that controller, including the loopback
		// address.
		NetworkDisabled: class.Network == networkNone && !spec.OwnKernel(class.Runtime),
	}
	host := &container.HostConfig{
		NetworkMode:    container.NetworkMode(class.Network),
		Runtime:        class.Runtime,
		Init:           &noInit,
		ReadonlyRootfs: class.ReadOnlyRoot,
		CapDrop:        strslice.StrSlice(class.CapDrop),
		SecurityOpt:    securityOptions(class),
		IpcMode:        container.IpcMode(class.IPC),
		CgroupnsMode:   container.CgroupnsModePrivate,
		ShmSize:        class.Cgroup.ShmBytes,
		Mounts:         append(mounts, masks...),
		Tmpfs:          tmpfsOptions(class),
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		LogConfig:      container.LogConfig{Type: class.Log.Driver, Config: class.Log.Options},
		Resources: container.Resources{
			Memory: class.Cgroup.MemoryBytes,
			// Docker counts memory and swap together.
			MemorySwap:     class.Cgroup.MemoryBytes + class.Cgroup.SwapBytes,
			NanoCPUs:       class.Cgroup.NanoCPUs,
			PidsLimit:      &class.Cgroup.PIDs,
			Ulimits:        engineUlimits(class.Ulimits),
			DeviceRequests: devices,
		},
	}
	if class.Cgroup.Version == 1 {
		// Only cgroup v1 has this setting; v2 does not need it once swap is off.
		host.MemorySwappiness = new(int64)
	}
	return config, host, nil
}

// networkNone is the network of a class without network access.
const networkNone = "none"

// securityOptions sends the seccomp profile itself, because the engine's built-in profile
// is as old as the engine.
func securityOptions(class spec.Class) []string {
	options := []string{"seccomp=" + spec.SeccompProfile}
	if class.NoNewPrivileges {
		options = append(options, "no-new-privileges:true")
	}
	return options
}

// bindMounts uses the API's Mounts, never Binds: Binds creates a missing source on the
// host as root, Mounts refuses it.
func bindMounts(shapes []spec.Bind, sources engine.Sources, propagation mount.Propagation) ([]mount.Mount, error) {
	mounts := make([]mount.Mount, 0, len(shapes))
	for _, shape := range shapes {
		source := sources[shape.Role]
		if source == "" {
			return nil, fmt.Errorf("no host path for mount %s", shape.Target)
		}
		mounts = append(mounts, bindMount(source, shape.Target, shape.ReadOnly, propagation))
	}
	return mounts, nil
}

// bindMount is not recursive. Otherwise a file system mounted below a read-only source
// would be writable in the container.
func bindMount(source, target string, readOnly bool, propagation mount.Propagation) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly,
		BindOptions: &mount.BindOptions{Propagation: propagation, NonRecursive: true},
	}
}

// maskMounts hide parts of the binds. The engine mounts by depth, so each mask is mounted
// after the path that it hides.
func maskMounts(masks []spec.Mask, sources engine.Sources, propagation mount.Propagation) ([]mount.Mount, error) {
	var mounts []mount.Mount
	for _, mask := range masks {
		if mask.Dir && mask.Role == "" {
			mounts = append(mounts, mount.Mount{Type: mount.TypeTmpfs, Target: mask.Target, ReadOnly: true,
				TmpfsOptions: &mount.TmpfsOptions{SizeBytes: maskBytes, Mode: 0o555}})
			continue
		}
		file, err := bindMounts([]spec.Bind{{Role: cmp.Or(mask.Role, spec.RoleEmpty), Target: mask.Target, ReadOnly: true}}, sources, propagation)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, file...)
	}
	return mounts, nil
}

// maskBytes is the size of an empty, read-only directory.
const maskBytes = 4096

// terminals is an instance of devpts with a limit of its own, because all containers of a
// machine share its pseudo-terminals (kernel.pty.max). It is an anonymous volume: the engine
// makes it with the container and removes it with the container. A volume with a name would
// be one instance for all containers that mount it.
func terminals() mount.Mount {
	return mount.Mount{Type: mount.TypeVolume, Target: spec.TerminalsDir, VolumeOptions: &mount.VolumeOptions{
		NoCopy: true,
		DriverConfig: &mount.Driver{Name: "local", Options: map[string]string{
			"type": "devpts", "device": "devpts",
			"o": fmt.Sprintf("newinstance,nosuid,noexec,gid=5,mode=0620,ptmxmode=0666,max=%d", spec.Terminals),
		}},
	}}
}

// propagation keeps later mounts of the host out of the container. For its own data
// directory the engine insists on rslave, which only keeps the container's mounts from
// the host.
func propagation(transfer string) mount.Propagation {
	if transfer == spec.TransferCopy {
		return mount.PropagationRSlave
	}
	return mount.PropagationRPrivate
}

func tmpfsOptions(class spec.Class) map[string]string {
	uid, gid, _ := strings.Cut(class.User, ":")
	options := make(map[string]string, len(class.Tmpfs))
	for _, t := range class.Tmpfs {
		// Compilers of PyTorch and Triton load code from /tmp, so it must be executable;
		// Docker's default is noexec and without a size. The owner matters because runc
		// gives the mount the mode of the directory below it and ignores the option.
		options[t.Target] = fmt.Sprintf("rw,nosuid,nodev,exec,size=%d,nr_inodes=%d,mode=1777,uid=%s,gid=%s",
			t.SizeBytes, t.Inodes, uid, gid)
	}
	return options
}

func engineUlimits(ulimits []spec.Ulimit) []*units.Ulimit {
	out := make([]*units.Ulimit, 0, len(ulimits))
	for _, u := range ulimits {
		out = append(out, &units.Ulimit{Name: u.Name, Soft: u.Soft, Hard: u.Hard})
	}
	return out
}

const (
	// cdiAPI is the first API version that provides CDI devices, cdiListAPI the first
	// that lists them.
	cdiAPI     = "1.44"
	cdiListAPI = "1.50"
	// driverCDI is the driver of a request for CDI devices; other drivers are the
	// engine's own.
	driverCDI = "cdi"
	// cdiNVIDIA is the prefix of the names of NVIDIA's CDI devices.
	cdiNVIDIA = "nvidia.com/gpu="
)

// hostGPUs derives from Docker's system info how the engine can provide GPUs.
func hostGPUs(info system.Info, api string) spec.HostGPUs {
	var gpus spec.HostGPUs
	_, gpus.NVIDIA = info.Runtimes["nvidia"]
	api = cmp.Or(api, OldestAPI)
	// An engine with CDI disabled has no directories for it.
	gpus.CDI = versions.GreaterThanOrEqualTo(api, cdiAPI) && len(info.CDISpecDirs) > 0
	if gpus.CDI && versions.GreaterThanOrEqualTo(api, cdiListAPI) {
		gpus.CDIDevices = []string{}
		for _, d := range info.DiscoveredDevices {
			if d.Source == "cdi" && strings.HasPrefix(d.ID, cdiNVIDIA) {
				gpus.CDIDevices = append(gpus.CDIDevices, d.ID)
			}
		}
		slices.Sort(gpus.CDIDevices)
	}
	return gpus
}

// deviceRequests requests exactly the leased devices. "All" remains only if the devices
// are unknown.
func deviceRequests(gpus spec.GPURequest) ([]container.DeviceRequest, error) {
	request := container.DeviceRequest{Driver: gpus.Driver, DeviceIDs: gpus.IDs}
	switch {
	case !gpus.Any():
		return nil, nil
	case gpus.Count > 0:
		return nil, errors.New("a number of GPUs was asked for, and none are leased")
	case gpus.Driver == driverCDI && gpus.All:
		request.DeviceIDs = []string{cdiNVIDIA + "all"}
	case gpus.All:
		request.Count = -1
	}
	if gpus.Driver != driverCDI {
		// A CDI request has no capabilities: the device's specification lists what it
		// needs.
		request.Capabilities = [][]string{{"gpu"}}
	}
	return []container.DeviceRequest{request}, nil
}
