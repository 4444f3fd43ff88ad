package enginetest

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Copying is the part of a [Fake] that implements staging volumes, as temporary directories.
type Copying struct {
	// CreateErr and the others are the errors of calls.
	CreateErr, FillErr, FetchErr, MonitorErr, RemoveVolumeErr error
	// Gone is how many times a call finds the helper container removed. It stays removed until
	// RecreateHelper.
	Gone int
	// CutAfter is the number of bytes after which the next Cuts archives break off.
	CutAfter, Cuts int
	// Space returns the answers of the disk monitor; nil means plenty. If used is [TooDeep], it
	// cannot be measured.
	Space func() (free, entries, used int64)
	// Deaf is how many disk monitors end at their first question, DeafToList how many when asked
	// for a list. After DeafAfter all do at any question.
	Deaf, DeafToList int
	DeafAfter        time.Time

	// Fetched has the paths that were fetched, and Monitors is the number of disk monitors that
	// were started.
	Fetched  []string
	Monitors int

	mu      sync.Mutex
	volumes map[string]*stagedVolume
}

// stagedVolume is the volume of one run, and its helpers.
type stagedVolume struct {
	dir     string
	labels  map[string]string
	helper  bool // exists
	monitor bool // exists
}

func (v *stagedVolume) partLabels(part string) map[string]string {
	labels := map[string]string{spec.LabelPart: part}
	maps.Copy(labels, v.labels)
	return labels
}

// TooDeep stands for a size that a disk monitor cannot measure.
const TooDeep = -1

// VolumeDir returns the directory of a staging volume, or "" if it does not exist.
func (d *Copying) VolumeDir(runID string) string { return d.volume(runID).dir }

// VolumeLabels returns the labels of a staging volume.
func (d *Copying) VolumeLabels(runID string) map[string]string {
	return maps.Clone(d.volume(runID).labels)
}

func (d *Copying) volume(runID string) stagedVolume {
	d.mu.Lock()
	defer d.mu.Unlock()
	if volume := d.volumes[runID]; volume != nil {
		return *volume
	}
	return stagedVolume{}
}

// leftVolumes lists the staging volumes and disk monitors that still exist.
func (d *Copying) leftVolumes() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var left []string
	for id, volume := range d.volumes {
		left = append(left, "volume "+id)
		if volume.monitor {
			left = append(left, "monitor "+id)
		}
	}
	return left
}

func (d *Copying) inVolume(source string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, volume := range d.volumes {
		if source == volume.dir || strings.HasPrefix(source, volume.dir+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// helpers lists the containers of staging volumes.
func (d *Copying) helpers() []engine.Found {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []engine.Found
	add := func(name, part string, volume *stagedVolume, running bool) {
		all = append(all, engine.Found{ID: name, Name: name, Labels: volume.partLabels(part), Running: running})
	}
	for _, id := range slices.Sorted(maps.Keys(d.volumes)) {
		volume := d.volumes[id]
		if volume.helper {
			add(spec.HelperName(id), spec.PartHelper, volume, false)
		}
		if volume.monitor {
			add(spec.MonitorName(id), spec.PartMonitor, volume, true)
		}
	}
	return all
}

// forgetHelper removes a helper by its name.
func (d *Copying) forgetHelper(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, volume := range d.volumes {
		switch name {
		case spec.HelperName(id):
			volume.helper = false
		case spec.MonitorName(id):
			volume.monitor = false
		}
	}
}

func (d *Copying) CreateVolume(ctx context.Context, run spec.Spec, labels map[string]string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := errors.Join(ctx.Err(), d.CreateErr); err != nil {
		return "", err
	}
	if d.volumes[run.Job.RunID] != nil {
		return "", fmt.Errorf("%w: %s", engine.ErrNameTaken, spec.VolumeName(run.Job.RunID))
	}
	dir, err := os.MkdirTemp("", "fake-volume-")
	if err != nil {
		return "", err
	}
	if d.volumes == nil {
		d.volumes = map[string]*stagedVolume{}
	}
	d.volumes[run.Job.RunID] = &stagedVolume{dir: dir, labels: maps.Clone(labels), helper: true}
	return dir, nil
}

// find returns a staging volume that has its helper container, unless an error is injected.
func (d *Copying) find(ctx context.Context, id string, fail *error) (*stagedVolume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *fail != nil {
		return nil, *fail
	}
	volume := d.volumes[id]
	if volume != nil && d.Gone > 0 && volume.helper {
		d.Gone--
		volume.helper = false
	}
	if volume == nil || !volume.helper {
		return nil, fmt.Errorf("%w: %s", engine.ErrNoContainer, spec.HelperName(id))
	}
	return volume, ctx.Err()
}

func (d *Copying) RecreateHelper(ctx context.Context, run spec.Spec, labels map[string]string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	volume := d.volumes[run.Job.RunID]
	if volume == nil || !maps.Equal(volume.labels, labels) {
		return errors.New("no such volume")
	}
	volume.helper = true
	return ctx.Err()
}

func (d *Copying) FillVolume(ctx context.Context, id string, archive io.Reader) error {
	volume, err := d.find(ctx, id, &d.FillErr)
	if err != nil {
		return err
	}
	reader := tar.NewReader(archive)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpack(filepath.Join(volume.dir, filepath.FromSlash(header.Name)), header, reader); err != nil {
			return err
		}
	}
}

func unpack(to string, header *tar.Header, content io.Reader) error {
	switch header.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(to, 0o755)
	case tar.TypeSymlink:
		return os.Symlink(header.Linkname, to)
	}
	text, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, fs.FileMode(header.Mode)|0o200)
}

// FetchVolume returns archives like those of an engine: sorted, without sockets.
func (d *Copying) FetchVolume(ctx context.Context, id, name string) (io.ReadCloser, error) {
	volume, err := d.find(ctx, id, &d.FetchErr)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(packInto(w, filepath.Join(volume.dir, filepath.FromSlash(name))), w.Close()); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Fetched = append(d.Fetched, name)
	if d.Cuts > 0 {
		d.Cuts--
		broken := fmt.Errorf("%w: %w", engine.ErrUnavailable, io.ErrUnexpectedEOF)
		return io.NopCloser(io.MultiReader(io.LimitReader(&archive, int64(d.CutAfter)), failing{broken})), nil
	}
	return io.NopCloser(&archive), nil
}

// packInto writes the tree below base to an archive. The names begin with the last element of
// base.
func packInto(w *tar.Writer, base string) error {
	return filepath.WalkDir(base, func(full string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.Mode()&fs.ModeSocket != 0 {
			return err
		}
		target, _ := os.Readlink(full) // empty for anything but a link
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(filepath.Dir(base), full)
		if err != nil {
			return err
		}
		header.Name = filepath.ToSlash(rel)
		if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		text, err := os.ReadFile(full) //nolint:gosec // a test does not change it meanwhile
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func (d *Copying) MonitorVolume(ctx context.Context, run spec.Spec, _ map[string]string) (engine.Conversation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	volume := d.volumes[run.Job.RunID]
	switch {
	case d.MonitorErr != nil:
		return nil, d.MonitorErr
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case volume == nil:
		return nil, errors.New("no such volume")
	}
	volume.monitor = true
	d.Monitors++
	questions, stdin := io.Pipe()
	w := &diskMonitor{copying: d, volume: volume, dir: filepath.Join(volume.dir, "out"), questions: questions, stdin: stdin}
	if d.Deaf > 0 {
		d.Deaf--
		w.deaf = true
	}
	return w, nil
}

// diskMonitor answers like the shell script of the disk monitor.
type diskMonitor struct {
	copying   *Copying
	volume    *stagedVolume
	dir       string
	deaf      bool
	questions *io.PipeReader
	stdin     *io.PipeWriter
}

func (w *diskMonitor) Copy(stdout, stderr io.Writer) error {
	lines := bufio.NewScanner(w.questions)
	for lines.Scan() {
		question, where, _ := strings.Cut(lines.Text(), " ")
		if w.deaf || w.copying.ends(question) {
			_, _ = io.WriteString(stderr, "sh: du: not found\n")
			_ = w.questions.Close() // never fails
			return nil
		}
		if question == "list" {
			listDir(stdout, filepath.Join(w.dir, where))
			continue
		}
		free, entries, used := int64(1<<40), int64(1), int64(4096)
		if w.copying.Space != nil {
			free, entries, used = w.copying.Space()
		}
		if question == "free" {
			fmt.Fprintf(stdout, "free /dev/fake 9 9 %d 1%% /evalbox\n", free/1024)
			continue
		}
		size := fmt.Sprintf("%d\t.", used/1024)
		if used == TooDeep {
			size = "deep"
		}
		fmt.Fprintf(stdout, "free /dev/fake disk 9 9 %d 1%% /evalbox\nentries %d\nused %s\n", free/1024, entries, size)
	}
	return nil // end of the questions
}

// ends reports whether a disk monitor ends at a question.
func (d *Copying) ends(question string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if question == "list" && d.DeafToList > 0 {
		d.DeafToList--
		return true
	}
	return !d.DeafAfter.IsZero() && time.Now().After(d.DeafAfter)
}

func listDir(to io.Writer, dir string) {
	types := map[string]fs.FileMode{"d": fs.ModeDir, "l": fs.ModeSymlink, "p": fs.ModeNamedPipe, "s": fs.ModeSocket, "f": 0}
	for _, letter := range []string{"f", "d", "l", "p", "s", "b", "c"} {
		_ = filepath.WalkDir(dir, func(full string, entry fs.DirEntry, err error) error {
			if want, ok := types[letter]; err == nil && ok && entry.Type() == want {
				rel, _ := filepath.Rel(dir, full)
				_, _ = io.WriteString(to, "./"+rel+"\x00")
			}
			return err
		})
		_, _ = io.WriteString(to, "\x00")
	}
}

func (w *diskMonitor) Stdin() io.WriteCloser { return w.stdin }

func (w *diskMonitor) Close() error { return errors.Join(w.questions.Close(), w.stdin.Close()) }

func (d *Copying) RemoveVolume(ctx context.Context, runID string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := errors.Join(ctx.Err(), d.RemoveVolumeErr); err != nil {
		return err
	}
	volume := d.volumes[runID]
	if volume == nil {
		return nil
	}
	delete(d.volumes, runID)
	return os.RemoveAll(volume.dir)
}

func (d *Copying) Volumes(ctx context.Context) ([]engine.Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []engine.Volume
	for _, id := range slices.Sorted(maps.Keys(d.volumes)) {
		all = append(all, engine.Volume{Name: spec.VolumeName(id), Labels: d.volumes[id].partLabels(spec.PartVolume)})
	}
	return all, ctx.Err()
}
