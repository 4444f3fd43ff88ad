package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/strslice"
	"github.com/docker/docker/api/types/volume"
)

// stallLimit is how long a transfer may stand still.
const stallLimit = 2 * time.Minute

// depotLabels are those of one part of a run.
func depotLabels(labels map[string]string, part string) map[string]string {
	with := maps.Clone(labels)
	with[LabelPart] = part
	return with
}

// depotMount mounts the whole depot. NoCopy keeps what the image has at that
// place out of the volume.
func depotMount(runID string, labels map[string]string, readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: depotName(runID), Target: depotDir, ReadOnly: readOnly,
		VolumeOptions: &mount.VolumeOptions{
			NoCopy: true, Labels: depotLabels(labels, PartDepot), DriverConfig: &mount.Driver{Name: "local"},
		},
	}
}

// courierRequest is the body of the create call of a courier, which makes the
// volume too. It is pure.
func courierRequest(run Spec, labels map[string]string) (*container.Config, *container.HostConfig, error) {
	config, host, err := createRequest(helperSpec(run, DedicatedUser, "/never-started"), nil, depotLabels(labels, PartCourier))
	if err != nil {
		return nil, nil, err
	}
	host.Mounts = []mount.Mount{depotMount(run.Job.RunID, labels, false)}
	return config, host, nil
}

// watcherRequest is the body of the create call of a watcher. It is pure. The
// watcher must see what a program hides from its own user, and must not be able to
// change anything: it is root with the one capability to read everything, in the
// one mount that it has. The same capability would let it open files of the host
// by their handles, so that call is taken out of its profile.
func watcherRequest(run Spec, labels map[string]string) (*container.Config, *container.HostConfig, error) {
	spec := helperSpec(run, "0:0", watcherCommand()...)
	spec.Job.Stdin = true
	config, host, err := createRequest(spec, nil, depotLabels(labels, PartWatcher))
	if err != nil {
		return nil, nil, err
	}
	profile, err := withoutReadEverything(seccompJSON)
	if err != nil {
		return nil, nil, err
	}
	host.CapAdd = strslice.StrSlice{readEverything}
	host.SecurityOpt[0] = "seccomp=" + profile
	host.Mounts = []mount.Mount{depotMount(run.Job.RunID, labels, true)}
	return config, host, nil
}

const readEverything = "CAP_DAC_READ_SEARCH"

// withoutReadEverything is a seccomp profile without the calls that the
// capability would permit.
func withoutReadEverything(profile string) (string, error) {
	var all map[string]json.RawMessage
	var rules []json.RawMessage
	err := json.Unmarshal([]byte(profile), &all)
	if err == nil {
		err = json.Unmarshal(all["syscalls"], &rules)
	}
	if err != nil {
		return "", fmt.Errorf("reading the seccomp profile: %w", err)
	}
	rules = slices.DeleteFunc(rules, func(text json.RawMessage) bool {
		var rule struct {
			Includes struct {
				Caps []string `json:"caps"`
			} `json:"includes"`
		}
		return json.Unmarshal(text, &rule) == nil && slices.Contains(rule.Includes.Caps, readEverything)
	})
	if all["syscalls"], err = json.Marshal(rules); err != nil {
		return "", fmt.Errorf("writing the seccomp profile: %w", err)
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// MakeDepot implements [Engine]. The courier's name is what keeps two runs of one
// ID apart: making a volume that is there is no error.
func (e *dockerEngine) MakeDepot(ctx context.Context, spec Spec, labels map[string]string) (string, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	name := depotName(spec.Job.RunID)
	switch _, err := e.api.VolumeInspect(ctx, name); {
	case err == nil:
		return "", fmt.Errorf("making volume %s: %w", name, ErrNameTaken)
	case !errdefs.IsNotFound(err):
		return "", fmt.Errorf("making volume %s: %w", name, engineError(ctx, err))
	}
	config, host, err := courierRequest(spec, labels)
	if err != nil {
		return "", err
	}
	if err := e.createHelper(ctx, config, host, courierName(spec.Job.RunID)); err != nil {
		return "", err
	}
	made, err := e.api.VolumeInspect(ctx, name)
	if err != nil {
		return "", fmt.Errorf("making volume %s: %w", name, engineError(ctx, err))
	}
	if !maps.Equal(made.Labels, depotLabels(labels, PartDepot)) || made.Driver != "local" || !path.IsAbs(made.Mountpoint) {
		err := fmt.Errorf("making volume %s: it is somebody else's: %w", name, ErrNameTaken)
		return "", errors.Join(err, e.Remove(ctx, courierName(spec.Job.RunID))) // that one is ours
	}
	return made.Mountpoint, nil
}

// MendDepot implements [Engine]. A courier that is there is as good as a new one.
func (e *dockerEngine) MendDepot(ctx context.Context, spec Spec, labels map[string]string) error {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	// Otherwise the courier would make another volume, an empty one.
	if _, err := e.api.VolumeInspect(ctx, depotName(spec.Job.RunID)); err != nil {
		return fmt.Errorf("looking for volume %s: %w", depotName(spec.Job.RunID), engineError(ctx, err))
	}
	config, host, err := courierRequest(spec, labels)
	if err != nil {
		return err
	}
	if err := e.createHelper(ctx, config, host, courierName(spec.Job.RunID)); err != nil && !errors.Is(err, ErrNameTaken) {
		return err
	}
	return nil
}

// transferError is why files could not be copied. What the engine says when the
// courier is not there is what it says of a file that is not there.
func (e *dockerEngine) transferError(ctx context.Context, runID, doing string, err error) error {
	err = engineError(ctx, err)
	if ctx.Err() == nil && !isLoss(err) {
		if _, inspectErr := e.Inspect(ctx, courierName(runID)); errors.Is(inspectErr, ErrNoContainer) {
			err = inspectErr
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (e *dockerEngine) createHelper(ctx context.Context, config *container.Config, host *container.HostConfig, name string) error {
	_, err := e.api.ContainerCreate(ctx, config, host, &network.NetworkingConfig{}, nil, name)
	if errdefs.IsConflict(err) {
		err = fmt.Errorf("%w: %w", ErrNameTaken, err)
	}
	if err != nil {
		return fmt.Errorf("creating container %s: %w", name, engineError(ctx, err))
	}
	return nil
}

// FillDepot implements [Engine].
func (e *dockerEngine) FillDepot(ctx context.Context, runID string, archive io.Reader) error {
	ctx, moving := moving(ctx)
	defer moving.stop()
	err := e.api.CopyToContainer(ctx, courierName(runID), depotDir, moving.reader(archive), container.CopyToContainerOptions{})
	if err != nil {
		return e.transferError(ctx, runID, "copying files to the engine", err)
	}
	return nil
}

// FetchDepot implements [Engine].
func (e *dockerEngine) FetchDepot(ctx context.Context, runID, name string) (io.ReadCloser, error) {
	ctx, moving := moving(ctx)
	archive, _, err := e.api.CopyFromContainer(ctx, courierName(runID), path.Join(depotDir, name))
	if err != nil {
		err = e.transferError(ctx, runID, "copying files from the engine", err)
		moving.stop() // which ends ctx, and so comes last
		return nil, err
	}
	return &depotArchive{body: archive, from: moving.reader(archive), ctx: ctx, stop: moving.stop}, nil
}

// depotArchive is an archive that comes from the engine.
type depotArchive struct {
	body io.Closer
	from io.Reader
	ctx  context.Context //nolint:containedctx // of the one call whose answer this is
	stop func()
}

// Read makes an archive that breaks off a loss of the engine.
func (a *depotArchive) Read(p []byte) (int, error) {
	n, err := a.from.Read(p)
	switch {
	case err == nil, errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return n, err
	case a.ctx.Err() != nil:
		return n, engineError(a.ctx, err)
	}
	return n, &connectionError{ErrEngineUnavailable, err}
}

func (a *depotArchive) Close() error {
	a.stop()
	return a.body.Close()
}

// movement ends a transfer that stands still.
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

// WatchDepot implements [Engine].
func (e *dockerEngine) WatchDepot(ctx context.Context, spec Spec, labels map[string]string) (Streams, error) {
	config, host, err := watcherRequest(spec, labels)
	if err != nil {
		return nil, err
	}
	name := watcherName(spec.Job.RunID)
	if err := e.Remove(ctx, name); err != nil {
		return nil, err
	}
	if err := e.createHelper(ctx, config, host, name); err != nil {
		return nil, err
	}
	streams, err := e.Attach(ctx, name, true)
	if err != nil {
		return nil, err
	}
	if err := e.Start(ctx, name); err != nil {
		return nil, errors.Join(err, streams.Close())
	}
	return streams, nil
}

// RemoveDepot implements [Engine]. The volume goes last: the engine keeps one
// that is in use.
func (e *dockerEngine) RemoveDepot(ctx context.Context, runID string) error {
	watcher := make(chan error, 1)
	go func() { watcher <- e.Remove(ctx, watcherName(runID)) }()
	err := e.Remove(ctx, courierName(runID))
	err = errors.Join(err, <-watcher)
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	if gone := e.api.VolumeRemove(ctx, depotName(runID), false); gone != nil && !errdefs.IsNotFound(gone) {
		err = errors.Join(err, fmt.Errorf("removing volume %s: %w", depotName(runID), engineError(ctx, gone)))
	}
	return err
}

// Depots implements [Engine].
func (e *dockerEngine) Depots(ctx context.Context) ([]Depot, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	found, err := e.api.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", LabelManaged+"=true"))})
	if err != nil {
		return nil, fmt.Errorf("listing volumes: %w", engineError(ctx, err))
	}
	depots := make([]Depot, 0, len(found.Volumes))
	for _, v := range found.Volumes {
		depots = append(depots, Depot{Name: v.Name, Labels: v.Labels})
	}
	return depots, nil
}
