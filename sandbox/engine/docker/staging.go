package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/strslice"
	"github.com/docker/docker/api/types/volume"

	"github.com/evalbox/evalbox/sandbox/archive"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// stallLimit is how long a transfer may make no progress.
const stallLimit = 2 * time.Minute

// partLabels returns the labels of one part of a run.
func partLabels(labels map[string]string, part string) map[string]string {
	with := maps.Clone(labels)
	with[spec.LabelPart] = part
	return with
}

// volumeMount mounts a whole volume, which is created if it does not exist. NoCopy keeps
// the image's files at the mount point out of the volume.
func volumeMount(name string, labels map[string]string, readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: name, Target: spec.VolumeDir, ReadOnly: readOnly,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, Labels: labels, DriverConfig: &mount.Driver{Name: "local"}},
	}
}

func stagingMount(runID string, labels map[string]string, readOnly bool) mount.Mount {
	return volumeMount(spec.VolumeName(runID), partLabels(labels, spec.PartVolume), readOnly)
}

// Limits of a helper container. du needs about 64 MiB to list a million files with
// several names each.
const (
	helperMemory = 128 << 20
	helperPIDs   = 32
	helperCPUs   = 1e9
	// gvisorPIDs is the lowest process limit that works with gVisor. The limit also
	// applies to gVisor's own threads; below it, the whole container dies without a
	// message.
	gvisorPIDs = 4096
)

// helperClass is the class of a helper container. It is as isolated as the run itself and
// uses the same image, but has no access to anything of the run.
func helperClass(run spec.Class, user string) spec.Class {
	class := run
	class.User = user
	class.WorkDir = "/"
	class.Network = networkNone
	class.Cgroup.MemoryBytes, class.Cgroup.SwapBytes = helperMemory, 0
	if class.Cgroup.PIDs = helperPIDs; spec.OwnKernel(run.Runtime) {
		class.Cgroup.PIDs = gvisorPIDs
	}
	class.Cgroup.NanoCPUs = min(run.Cgroup.NanoCPUs, helperCPUs)
	class.Cgroup.ShmBytes = 1 << 20
	class.Ulimits = []spec.Ulimit{{Name: "core"}}
	class.Tmpfs, class.Binds, class.Masks, class.Env = nil, nil, nil, nil
	class.GPUs = spec.GPURequest{}
	class.Log = spec.Log{Driver: "none"}
	return class
}

// neverStarted is the command of a helper container that only provides its mounts.
const neverStarted = "/never-started"

// helperRequest builds the body of the create call of the helper container that fills
// and reads the staging volume. That call creates the volume too. The function is pure.
func helperRequest(run spec.Spec, labels map[string]string) (*container.Config, *container.HostConfig, error) {
	config, host, err := baseRequest(helperClass(run.Class, spec.DedicatedUser),
		engine.Meta{Name: spec.HelperName(run.Job.RunID), Labels: partLabels(labels, spec.PartHelper)})
	if err != nil {
		return nil, nil, err
	}
	config.Entrypoint = strslice.StrSlice{neverStarted}
	host.Mounts = []mount.Mount{stagingMount(run.Job.RunID, labels, false)}
	return config, host, nil
}

// watchedEntries is the number of entries at which the disk monitor gives up: one more
// than a run may have, plus the directories that exist before.
const watchedEntries = "1000003"

// monitorRequest builds the body of the create call of the disk monitor. It is pure. The
// monitor must see files that a program hides from its own user, and must not be able to
// change anything. Therefore it is root with a single capability, to read everything, and
// has a single mount. That capability would also permit opening files of the host by
// handle, so its profile does not allow that call.
func monitorRequest(run spec.Spec, labels map[string]string) (*container.Config, *container.HostConfig, error) {
	config, host, err := baseRequest(helperClass(run.Class, "0:0"),
		engine.Meta{Name: spec.MonitorName(run.Job.RunID), Labels: partLabels(labels, spec.PartMonitor)})
	if err != nil {
		return nil, nil, err
	}
	config.Entrypoint = strslice.StrSlice{"/bin/sh"}
	config.Cmd = strslice.StrSlice{"-c", archive.Script, "watcher", path.Join(spec.VolumeDir, archive.OutDir), watchedEntries}
	config.AttachStdin, config.OpenStdin, config.StdinOnce = true, true, true
	host.CapAdd = strslice.StrSlice{"CAP_DAC_READ_SEARCH"}
	host.SecurityOpt[0] = "seccomp=" + spec.SeccompMonitor
	host.Mounts = []mount.Mount{stagingMount(run.Job.RunID, labels, true)}
	return config, host, nil
}

// CreateVolume implements [engine.Copier]. The helper container's name separates two runs
// with the same ID: creating a volume that exists is not an error.
func (e *adapter) CreateVolume(ctx context.Context, run spec.Spec, labels map[string]string) (string, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	name := spec.VolumeName(run.Job.RunID)
	switch _, err := e.api.VolumeInspect(ctx, name); {
	case err == nil:
		return "", fmt.Errorf("making volume %s: %w", name, engine.ErrNameTaken)
	case !errdefs.IsNotFound(err):
		return "", fmt.Errorf("making volume %s: %w", name, engineError(ctx, err))
	}
	config, host, err := helperRequest(run, labels)
	if err != nil {
		return "", err
	}
	if _, err := e.createOnce(ctx, config, host, spec.HelperName(run.Job.RunID)); err != nil {
		return "", err
	}
	made, err := e.api.VolumeInspect(ctx, name)
	if err != nil {
		return "", fmt.Errorf("making volume %s: %w", name, engineError(ctx, err))
	}
	if !maps.Equal(made.Labels, partLabels(labels, spec.PartVolume)) || made.Driver != "local" || !path.IsAbs(made.Mountpoint) {
		err := fmt.Errorf("making volume %s: it is somebody else's: %w", name, engine.ErrNameTaken)
		return "", errors.Join(err, e.Remove(ctx, spec.HelperName(run.Job.RunID))) // this run created it
	}
	return made.Mountpoint, nil
}

// RecreateHelper implements [engine.Copier]. An existing helper container is kept.
func (e *adapter) RecreateHelper(ctx context.Context, run spec.Spec, labels map[string]string) error {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	// Otherwise the helper container would create a new, empty volume.
	if _, err := e.api.VolumeInspect(ctx, spec.VolumeName(run.Job.RunID)); err != nil {
		return fmt.Errorf("looking for volume %s: %w", spec.VolumeName(run.Job.RunID), engineError(ctx, err))
	}
	config, host, err := helperRequest(run, labels)
	if err != nil {
		return err
	}
	if _, err := e.createOnce(ctx, config, host, spec.HelperName(run.Job.RunID)); err != nil && !errors.Is(err, engine.ErrNameTaken) {
		return err
	}
	return nil
}

// transferError says why files could not be copied. The engine reports a missing helper
// container and a missing file in the same way.
func (e *adapter) transferError(ctx context.Context, runID, doing string, err error) error {
	err = engineError(ctx, err)
	if ctx.Err() == nil && !isLoss(err) {
		if _, inspectErr := e.inspect(ctx, spec.HelperName(runID)); errors.Is(inspectErr, engine.ErrNoContainer) {
			err = inspectErr
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// FillVolume implements [engine.Copier].
func (e *adapter) FillVolume(ctx context.Context, runID string, archive io.Reader) error {
	ctx, moving := moving(ctx)
	defer moving.stop()
	err := e.api.CopyToContainer(ctx, spec.HelperName(runID), spec.VolumeDir, moving.reader(archive), container.CopyToContainerOptions{})
	if err != nil {
		return e.transferError(ctx, runID, "copying files to the engine", err)
	}
	return nil
}

// FetchVolume implements [engine.Copier].
func (e *adapter) FetchVolume(ctx context.Context, runID, name string) (io.ReadCloser, error) {
	ctx, moving := moving(ctx)
	archive, _, err := e.api.CopyFromContainer(ctx, spec.HelperName(runID), path.Join(spec.VolumeDir, name))
	if err != nil {
		err = e.transferError(ctx, runID, "copying files from the engine", err)
		moving.stop() // last, because it ends ctx
		return nil, err
	}
	return &fetchedArchive{body: archive, from: moving.reader(archive), ctx: ctx, stop: moving.stop}, nil
}

// fetchedArchive is an archive sent by the engine.
type fetchedArchive struct {
	body io.Closer
	from io.Reader
	ctx  context.Context //nolint:containedctx // of the one call that this is the answer to
	stop func()
}

// Read implements [io.Reader]. A truncated archive is reported as a loss of the engine.
func (a *fetchedArchive) Read(p []byte) (int, error) {
	n, err := a.from.Read(p)
	switch {
	case err == nil, errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return n, err
	case a.ctx.Err() != nil:
		return n, engineError(a.ctx, err)
	}
	return n, &connectionError{engine.ErrUnavailable, err}
}

func (a *fetchedArchive) Close() error {
	a.stop()
	return a.body.Close()
}

// movement cancels a transfer that makes no progress.
type movement struct {
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func moving(ctx context.Context) (context.Context, *movement) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &movement{time.AfterFunc(stallLimit, func() { cancel(errSilent) }), cancel}
}

func (m *movement) stop() {
	m.timer.Stop()
	m.cancel(context.Canceled)
}

func (m *movement) reader(from io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		n, err := from.Read(p)
		m.timer.Reset(stallLimit)
		return n, err
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// MonitorVolume implements [engine.Copier].
func (e *adapter) MonitorVolume(ctx context.Context, run spec.Spec, labels map[string]string) (engine.Conversation, error) {
	config, host, err := monitorRequest(run, labels)
	if err != nil {
		return nil, err
	}
	name := spec.MonitorName(run.Job.RunID)
	if err := e.Remove(ctx, name); err != nil {
		return nil, err
	}
	if _, err := e.createOnce(ctx, config, host, name); err != nil {
		return nil, err
	}
	streams, err := e.attach(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := e.start(ctx, name); err != nil {
		return nil, errors.Join(notStarted(err), streams.Close())
	}
	return streams, nil
}

// RemoveVolume implements [engine.Copier]. The volume is removed last, because the engine
// refuses to remove one that is in use.
func (e *adapter) RemoveVolume(ctx context.Context, runID string) error {
	monitor := make(chan error, 1)
	go func() { monitor <- e.Remove(ctx, spec.MonitorName(runID)) }()
	err := e.Remove(ctx, spec.HelperName(runID))
	err = errors.Join(err, <-monitor)
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	if gone := e.api.VolumeRemove(ctx, spec.VolumeName(runID), false); gone != nil && !errdefs.IsNotFound(gone) {
		err = errors.Join(err, fmt.Errorf("removing volume %s: %w", spec.VolumeName(runID), engineError(ctx, gone)))
	}
	return err
}

// Volumes implements [engine.Copier].
func (e *adapter) Volumes(ctx context.Context) ([]engine.Volume, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	found, err := e.api.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", spec.LabelManaged+"=true"))})
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", engineError(ctx, err))
	}
	volumes := make([]engine.Volume, 0, len(found.Volumes))
	for _, v := range found.Volumes {
		if v.Labels[spec.LabelPart] == spec.PartInit {
			continue
		}
		volumes = append(volumes, engine.Volume{Name: v.Name, Labels: v.Labels})
	}
	return volumes, nil
}
