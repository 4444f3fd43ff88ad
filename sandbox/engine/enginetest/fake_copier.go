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

// Copying is the part of a [Fake] that implements depots, as temporary directories.
type Copying struct {
	// MakeErr and the others are the errors of calls.
	MakeErr, FillErr, FetchErr, WatchErr, RemoveDepotErr error
	// Gone is how many times a call finds the courier removed. It stays removed until
	// MendDepot.
	Gone int
	// CutAfter is the number of bytes after which the next Cuts archives break off.
	CutAfter, Cuts int
	// Space is what the watcher answers; nil means plenty. If used is [TooDeep], the watcher
	// cannot measure it.
	Space func() (free, entries, used int64)
	// Deaf is how many watchers end at their first question, DeafToList how many when asked
	// for a list. After DeafAfter all do at any question.
	Deaf, DeafToList int
	DeafAfter        time.Time

	// Fetched has the paths that were fetched, and Watches is the number of watchers that
	// were started.
	Fetched []string
	Watches int

	mu     sync.Mutex
	depots map[string]*depot
}

// depot is the volume of one run, and its helpers.
type depot struct {
	dir     string
	labels  map[string]string
	courier bool // exists
	watcher bool // exists
}

// TooDeep stands for a size that a watcher cannot measure.
const TooDeep = -1

// DepotDir returns the directory of a depot, or "" if it does not exist.
func (d *Copying) DepotDir(runID string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if depot := d.depots[runID]; depot != nil {
		return depot.dir
	}
	return ""
}

// DepotLabels returns the labels of a depot.
func (d *Copying) DepotLabels(runID string) map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if depot := d.depots[runID]; depot != nil {
		return maps.Clone(depot.labels)
	}
	return nil
}

// LeftDepots lists the depots and watchers that still exist.
func (d *Copying) LeftDepots() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var left []string
	for id, depot := range d.depots {
		left = append(left, "depot "+id)
		if depot.watcher {
			left = append(left, "watcher "+id)
		}
	}
	return left
}

func (d *Copying) inDepot(source string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, depot := range d.depots {
		if source == depot.dir || strings.HasPrefix(source, depot.dir+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// helpers lists the containers of depots.
func (d *Copying) helpers() []engine.Found {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []engine.Found
	add := func(name, part string, depot *depot, running bool) {
		labels := maps.Clone(depot.labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[spec.LabelPart] = part
		all = append(all, engine.Found{ID: name, Name: name, Labels: labels, Running: running})
	}
	for _, id := range slices.Sorted(maps.Keys(d.depots)) {
		if depot := d.depots[id]; depot.courier {
			add(spec.CourierName(id), spec.PartCourier, depot, false)
		}
		if depot := d.depots[id]; depot.watcher {
			add(spec.WatcherName(id), spec.PartWatcher, depot, true)
		}
	}
	return all
}

// forgetHelper removes a helper by its name.
func (d *Copying) forgetHelper(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, depot := range d.depots {
		switch name {
		case spec.CourierName(id):
			depot.courier = false
		case spec.WatcherName(id):
			depot.watcher = false
		}
	}
}

func (d *Copying) MakeDepot(ctx context.Context, run spec.Spec, labels map[string]string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := errors.Join(ctx.Err(), d.MakeErr); err != nil {
		return "", err
	}
	if d.depots[run.Job.RunID] != nil {
		return "", fmt.Errorf("%w: %s", engine.ErrNameTaken, spec.DepotName(run.Job.RunID))
	}
	dir, err := os.MkdirTemp("", "fake-depot-")
	if err != nil {
		return "", err
	}
	if d.depots == nil {
		d.depots = map[string]*depot{}
	}
	d.depots[run.Job.RunID] = &depot{dir: dir, labels: maps.Clone(labels), courier: true}
	return dir, nil
}

// find returns a depot that has its courier, unless an error is injected.
func (d *Copying) find(ctx context.Context, id string, fail *error) (*depot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *fail != nil {
		return nil, *fail
	}
	depot := d.depots[id]
	if depot != nil && d.Gone > 0 && depot.courier {
		d.Gone--
		depot.courier = false
	}
	if depot == nil || !depot.courier {
		return nil, fmt.Errorf("%w: %s", engine.ErrNoContainer, spec.CourierName(id))
	}
	return depot, ctx.Err()
}

func (d *Copying) MendDepot(ctx context.Context, run spec.Spec, labels map[string]string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	depot := d.depots[run.Job.RunID]
	if depot == nil || !maps.Equal(depot.labels, labels) {
		return errors.New("no such volume")
	}
	depot.courier = true
	return ctx.Err()
}

func (d *Copying) FillDepot(ctx context.Context, id string, archive io.Reader) error {
	depot, err := d.find(ctx, id, &d.FillErr)
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
		if err := unpack(filepath.Join(depot.dir, filepath.FromSlash(header.Name)), header, reader); err != nil {
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

// FetchDepot returns archives like those of an engine: sorted, without sockets.
func (d *Copying) FetchDepot(ctx context.Context, id, name string) (io.ReadCloser, error) {
	depot, err := d.find(ctx, id, &d.FetchErr)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(packInto(w, filepath.Join(depot.dir, filepath.FromSlash(name))), w.Close()); err != nil {
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
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func (d *Copying) WatchDepot(ctx context.Context, run spec.Spec, _ map[string]string) (engine.Conversation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	depot := d.depots[run.Job.RunID]
	switch {
	case d.WatchErr != nil:
		return nil, d.WatchErr
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case depot == nil:
		return nil, errors.New("no such volume")
	}
	depot.watcher = true
	d.Watches++
	questions, stdin := io.Pipe()
	w := &watcher{copying: d, depot: depot, dir: filepath.Join(depot.dir, "out"), questions: questions, stdin: stdin}
	if d.Deaf > 0 {
		d.Deaf--
		w.deaf = true
	}
	return w, nil
}

// watcher answers like the shell script of the watcher.
type watcher struct {
	copying   *Copying
	depot     *depot
	dir       string
	deaf      bool
	questions *io.PipeReader
	stdin     *io.PipeWriter
}

func (w *watcher) Copy(stdout, stderr io.Writer) error {
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

// ends reports whether a watcher ends at a question.
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

func (w *watcher) Stdin() io.WriteCloser { return w.stdin }

func (w *watcher) Close() error { return errors.Join(w.questions.Close(), w.stdin.Close()) }

func (d *Copying) RemoveDepot(ctx context.Context, runID string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := errors.Join(ctx.Err(), d.RemoveDepotErr); err != nil {
		return err
	}
	depot := d.depots[runID]
	if depot == nil {
		return nil
	}
	delete(d.depots, runID)
	return os.RemoveAll(depot.dir)
}

func (d *Copying) Depots(ctx context.Context) ([]engine.Depot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []engine.Depot
	for _, id := range slices.Sorted(maps.Keys(d.depots)) {
		labels := maps.Clone(d.depots[id].labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[spec.LabelPart] = spec.PartDepot
		all = append(all, engine.Depot{Name: spec.DepotName(id), Labels: labels})
	}
	return all, ctx.Err()
}
