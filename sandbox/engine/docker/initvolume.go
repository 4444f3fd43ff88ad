package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/strslice"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Files of the volume from which every container gets its init.
const (
	// initTarget is the path of init in a container.
	initTarget = "/run/evalbox-init"

	initFile, hostsFile, resolvFile, hostnameFile = "init", "hosts", "resolv.conf", "hostname"
)

// Docker leaves these files empty in a container whose network is disabled (20.10 fills
// the last one). The texts are those that it writes otherwise, with the name of the
// container.
const (
	hostsText = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nff00::0\tip6-mcastprefix\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n" +
		"127.0.0.1\t" + spec.HostName + "\n"
	// resolvText names an address that nobody uses (RFC 5737). A lookup fails at once,
	// because there is no route, and an observer of the network counts it.
	resolvText   = "nameserver 192.0.2.53\n"
	hostnameText = spec.HostName + "\n"
)

// initSet is the content of the init volume for one architecture. The volume's name is
// derived from the content, so the content of a volume never changes.
type initSet struct {
	volume  string
	archive []byte
}

// initSetOf returns the set for an image's platform: os/architecture[/variant].
func initSetOf(platform string) (initSet, error) {
	parts := strings.Split(platform, "/")
	if len(parts) < 2 || parts[0] != "linux" {
		return initSet{}, fmt.Errorf("there is no init for images of platform %q", platform)
	}
	return initSetFor(parts[1])
}

var initSets sync.Map // of initSet, by architecture

func initSetFor(architecture string) (initSet, error) {
	if set, ok := initSets.Load(architecture); ok {
		return set.(initSet), nil //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	binary, err := wire.Init(architecture)
	if err != nil {
		return initSet{}, err
	}
	archive, err := initArchive(binary)
	if err != nil {
		return initSet{}, err
	}
	sum := sha256.Sum256(archive)
	set := initSet{volume: "evalbox-init-" + hex.EncodeToString(sum[:6]), archive: archive}
	initSets.Store(architecture, set)
	return set, nil
}

// initArchive is the content of a volume. Init comes last, as a hard link to a complete
// file: once it exists, all files are complete.
func initArchive(binary []byte) ([]byte, error) {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	const whole = initFile + ".whole"
	for _, file := range []struct {
		name, link string
		mode       int64
		content    []byte
	}{
		{name: hostsFile, mode: 0o644, content: []byte(hostsText)},
		{name: resolvFile, mode: 0o644, content: []byte(resolvText)},
		{name: hostnameFile, mode: 0o644, content: []byte(hostnameText)},
		{name: whole, mode: 0o555, content: binary},
		{name: initFile, mode: 0o555, link: whole},
	} {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: file.mode, Size: int64(len(file.content))}
		if file.link != "" {
			header.Typeflag, header.Linkname = tar.TypeLink, file.link
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("packing the init: %w", err)
		}
		if _, err := archive.Write(file.content); err != nil {
			return nil, fmt.Errorf("packing the init: %w", err)
		}
	}
	err := archive.Close()
	return buffer.Bytes(), err
}

// initFiles is the directory on the engine's machine that holds a set.
type initFiles struct{ dir string }

// mounts returns the mounts of init and, where Docker writes none, of the files of a
// machine without a network. It skips paths at which something else is mounted.
func (f initFiles) mounts(networkDisabled bool, others []mount.Mount) []mount.Mount {
	var mounts []mount.Mount
	show := func(file, target string) {
		if !slices.ContainsFunc(others, func(m mount.Mount) bool { return path.Clean(m.Target) == target }) {
			// The directory is the engine's own: see propagation.
			mounts = append(mounts, bindMount(path.Join(f.dir, file), target, true, mount.PropagationRSlave))
		}
	}
	show(initFile, initTarget)
	if networkDisabled {
		show(hostsFile, "/etc/hosts")
		show(resolvFile, "/etc/resolv.conf")
		show(hostnameFile, "/etc/hostname")
	}
	return mounts
}

// initVolumes remembers where an engine keeps its volumes, or guesses. The engine refuses
// a wrong guess when a container is created, which costs one more call.
type initVolumes struct {
	mu   sync.Mutex
	root string
	// dirs maps volumes to the directories that the engine reported.
	dirs map[string]string
}

// usualRoot is the default data directory of an engine.
const usualRoot = "/var/lib/docker"

// Recall implements [engine.Identified].
func (e *adapter) Recall(info engine.Info) { e.inits.setRoot(info.RootDir) }

func (v *initVolumes) setRoot(dir string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.root = dir
}

func (v *initVolumes) setDir(volume, dir string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.dirs == nil {
		v.dirs = map[string]string{}
	}
	v.dirs[volume] = dir
}

// files returns the expected directory of a volume.
func (v *initVolumes) files(volume string) initFiles {
	v.mu.Lock()
	defer v.mu.Unlock()
	if dir := v.dirs[volume]; dir != "" {
		return initFiles{dir}
	}
	root := v.root
	if !path.IsAbs(root) {
		root = usualRoot
	}
	return initFiles{path.Join(root, "volumes", volume, "_data")}
}

// initLabels returns the labels of the init volume. It belongs to no run, so nothing
// removes it with a run; `docker volume prune` may.
func initLabels() map[string]string {
	return map[string]string{spec.LabelManaged: "true", spec.LabelPart: spec.PartInit}
}

// initHelper builds the body of the create call of the helper container, never started,
// through which a volume is created and filled. It is pure.
func initHelper(class spec.Class, set initSet, labels map[string]string) (*container.Config, *container.HostConfig, error) {
	config, host, err := baseRequest(helperClass(class, spec.DedicatedUser), engine.Meta{Name: initHelperName(set), Labels: labels})
	if err != nil {
		return nil, nil, err
	}
	config.Entrypoint = strslice.StrSlice{neverStarted}
	host.Mounts = []mount.Mount{volumeMount(set.volume, initLabels(), false)}
	return config, host, nil
}

// initHelperName is the same for all processes that would fill a volume, so only one of
// them does.
func initHelperName(set initSet) string {
	return strings.Replace(set.volume, "evalbox-init-", "evalbox_init-", 1)
}

const (
	// fillPatience is how long another process may take to fill a volume before it is
	// considered dead.
	fillPatience = 15 * time.Second
	fillPoll     = 50 * time.Millisecond
)

// deliver makes sure that the engine has a set, which was not found in looked, and
// records its directory.
func (e *adapter) deliver(ctx context.Context, set initSet, looked initFiles, class spec.Class) error {
	ctx, cancel := changeContext(ctx, 2*callTimeout)
	defer cancel()
	dir, err := e.findInitVolume(ctx, set)
	if errdefs.IsNotFound(err) || err == nil && dir == looked.dir {
		if err = e.fillInitVolume(ctx, set, class); err == nil {
			dir, err = e.findInitVolume(ctx, set)
		}
	}
	if err != nil {
		return fmt.Errorf("delivering the init to the engine in volume %s: %w", set.volume, engineError(ctx, err))
	}
	e.inits.setDir(set.volume, dir)
	return nil
}

// findInitVolume returns the directory of a volume of evalbox. A volume with the same name
// that somebody else created may be mounted from anywhere, so nothing is written to it.
func (e *adapter) findInitVolume(ctx context.Context, set initSet) (dir string, err error) {
	made, err := e.api.VolumeInspect(ctx, set.volume)
	if err != nil {
		return "", err
	}
	if !maps.Equal(made.Labels, initLabels()) || made.Driver != "local" || !path.IsAbs(made.Mountpoint) {
		return "", fmt.Errorf("it is not ours; %s", set.remedy())
	}
	return made.Mountpoint, nil
}

// remedy is the fix for a volume with the wrong content.
func (s initSet) remedy() string { return "remove it: docker volume rm " + s.volume }

// fillInitVolume creates and fills a volume, or waits until another process has.
func (e *adapter) fillInitVolume(ctx context.Context, set initSet, class spec.Class) error {
	labels := initLabels()
	labels[spec.LabelOwner] = owner.This().String()
	labels[spec.LabelDeadline] = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	config, host, err := initHelper(class, set, labels)
	if err != nil {
		return err
	}
	name := initHelperName(set)
	giveUp := time.Now().Add(fillPatience)
	waited := false
	for {
		created, err := e.api.ContainerCreate(ctx, config, host, &network.NetworkingConfig{}, nil, name)
		if err == nil {
			return e.fillThrough(ctx, created.ID, set)
		}
		if !errdefs.IsConflict(err) {
			return err
		}
		if waited && time.Now().After(giveUp) {
			giveUp = time.Now().Add(fillPatience)
			if err := e.Remove(ctx, name); err != nil {
				return err
			}
			continue
		}
		waited = true
		if err := pause(ctx, fillPoll); err != nil {
			return err
		}
	}
}

// fillThrough fills the volume through a helper container, unless it is full, and removes
// the container.
func (e *adapter) fillThrough(ctx context.Context, id string, set initSet) error {
	_, err := e.api.ContainerStatPath(ctx, id, path.Join(spec.VolumeDir, initFile))
	if errdefs.IsNotFound(err) {
		err = e.api.CopyToContainer(ctx, id, spec.VolumeDir, bytes.NewReader(set.archive), container.CopyToContainerOptions{})
	}
	return errors.Join(err, e.removeNow(ctx, id))
}
