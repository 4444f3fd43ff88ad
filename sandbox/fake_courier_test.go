package sandbox

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
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// fakeDepots is the part of the fake engine that keeps depots: folders here, as
// long as the engine has them.
type fakeDepots struct {
	// unseen makes the engine see none of our files.
	unseen bool
	asked  int // how often Sees was called

	seesErr, makeErr, fillErr, fetchErr, watchErr, removeErr error
	// gone is how often the courier is found to be removed; until somebody mends
	// that, it stays so.
	gone   int
	broken bool
	// cutAfter breaks the first archive off after so many bytes, and cuts says
	// how many archives; 0 is none.
	cutAfter, cuts int
	// space is what the watcher answers; nil stands for plenty.
	space func() (free, entries, used int64)
	// deaf is how many watchers end at the first question, deafToList how many
	// end when they shall list; after deafAfter all do.
	deaf, deafToList int
	deafAfter        time.Time

	mu       sync.Mutex
	dirs     map[string]string
	labels   map[string]map[string]string
	watchers map[string]bool
	fetched  []string
	watches  int // how many watchers were started
}

func (d *fakeDepots) Sees(context.Context, string, ...string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	return !d.unseen, d.seesErr
}

func (d *fakeDepots) SeesSame(ctx context.Context, imageID string, paths ...string) (bool, error) {
	return d.Sees(ctx, imageID, paths...)
}

func (d *fakeDepots) MakeDepot(_ context.Context, spec Spec, labels map[string]string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.makeErr != nil {
		return "", d.makeErr
	}
	dir, err := os.MkdirTemp("", "fake-depot-")
	if err != nil {
		return "", err
	}
	if d.dirs == nil {
		d.dirs, d.labels, d.watchers = map[string]string{}, map[string]map[string]string{}, map[string]bool{}
	}
	d.dirs[spec.Job.RunID], d.labels[spec.Job.RunID] = dir, labels
	return dir, nil
}

func (d *fakeDepots) dir(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dirs[id]
}

// missing says whether the courier is not there.
func (d *fakeDepots) missing() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone > 0 && !d.broken {
		d.gone, d.broken = d.gone-1, true
	}
	if d.broken {
		return fmt.Errorf("copying: %w", ErrNoContainer)
	}
	return nil
}

func (d *fakeDepots) MendDepot(_ context.Context, spec Spec, labels map[string]string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dirs[spec.Job.RunID] == "" || !maps.Equal(d.labels[spec.Job.RunID], labels) {
		return errors.New("no such volume")
	}
	d.broken = false
	return nil
}

func (d *fakeDepots) FillDepot(_ context.Context, id string, archive io.Reader) error {
	if err := d.missing(); err != nil {
		return err
	}
	if d.fillErr != nil {
		return d.fillErr
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
		to := filepath.Join(d.dir(id), header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(to, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(header.Linkname, to)
		default:
			var text []byte
			if text, err = io.ReadAll(reader); err == nil {
				err = os.WriteFile(to, text, fs.FileMode(header.Mode)|0o200)
			}
		}
		if err != nil {
			return err
		}
	}
}

// FetchDepot makes archives as an engine does: sorted, without sockets.
func (d *fakeDepots) FetchDepot(_ context.Context, id, name string) (io.ReadCloser, error) {
	if d.fetchErr != nil {
		return nil, d.fetchErr
	}
	if err := d.missing(); err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	base := filepath.Join(d.dir(id), name)
	err := filepath.WalkDir(base, func(full string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.Mode()&fs.ModeSocket != 0 {
			return err
		}
		target, _ := os.Readlink(full)
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
		text, err := os.ReadFile(full)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
	if err == nil {
		err = w.Close()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fetched = append(d.fetched, name)
	if d.cuts > 0 {
		d.cuts--
		broken := &connectionError{ErrEngineUnavailable, io.ErrUnexpectedEOF}
		return io.NopCloser(io.MultiReader(io.LimitReader(&archive, int64(d.cutAfter)), readerFunc(func([]byte) (int, error) {
			return 0, broken
		}))), err
	}
	return io.NopCloser(&archive), err
}

func (d *fakeDepots) WatchDepot(_ context.Context, spec Spec, _ map[string]string) (Streams, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watchErr != nil {
		return nil, d.watchErr
	}
	d.watchers[spec.Job.RunID] = true
	d.watches++
	questions, stdin := io.Pipe()
	w := &fakeWatcher{depots: d, dir: filepath.Join(d.dirs[spec.Job.RunID], "out"), questions: questions, stdin: stdin}
	if d.deaf > 0 {
		d.deaf--
		w.deaf = true
	}
	return w, nil
}

// tooDeep stands for a size that cannot be told.
const tooDeep = -1

// fakeWatcher answers as the script of the watcher does.
type fakeWatcher struct {
	depots    *fakeDepots
	dir       string
	deaf      bool
	questions *io.PipeReader
	stdin     *io.PipeWriter
}

func (w *fakeWatcher) Copy(stdout, stderr io.Writer) error {
	lines := bufio.NewScanner(w.questions)
	for lines.Scan() {
		question, where, _ := strings.Cut(lines.Text(), " ")
		if w.deaf || w.depots.ends(question) {
			_, _ = io.WriteString(stderr, "sh: du: not found\n")
			_ = w.questions.Close()
			return nil
		}
		if question == "list" {
			w.list(stdout, filepath.Join(w.dir, where))
			continue
		}
		free, entries, used := int64(1<<40), int64(1), int64(4096)
		if w.depots.space != nil {
			free, entries, used = w.depots.space()
		}
		if question == "free" {
			fmt.Fprintf(stdout, "free /dev/fake 9 9 %d 1%% /evalbox\n", free/1024)
			continue
		}
		bytes := fmt.Sprintf("%d\t.", used/1024)
		if used == tooDeep {
			bytes = "deep"
		}
		fmt.Fprintf(stdout, "free /dev/fake disk 9 9 %d 1%% /evalbox\nentries %d\nused %s\n", free/1024, entries, bytes)
	}
	return nil // nobody asks any more
}

// ends reports whether a watcher that hears a question ends.
func (d *fakeDepots) ends(question string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if question == "list" && d.deafToList > 0 {
		d.deafToList--
		return true
	}
	return !d.deafAfter.IsZero() && time.Now().After(d.deafAfter)
}

func (w *fakeWatcher) list(to io.Writer, dir string) {
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

func (w *fakeWatcher) Stdin() io.WriteCloser { return w.stdin }
func (w *fakeWatcher) Close() error {
	_ = w.questions.Close()
	return w.stdin.Close()
}

func (d *fakeDepots) RemoveDepot(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.removeErr != nil {
		return d.removeErr
	}
	err := os.RemoveAll(d.dirs[id])
	delete(d.dirs, id)
	delete(d.watchers, id)
	return err
}

func (d *fakeDepots) Depots(context.Context) ([]Depot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []Depot
	for id, labels := range d.labels {
		if d.dirs[id] != "" {
			all = append(all, Depot{Name: depotName(id), Labels: depotLabels(labels, PartDepot)})
		}
	}
	return all, nil
}

// left lists what the depots still hold.
func (d *fakeDepots) left() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var left []string
	for id := range d.dirs {
		left = append(left, "depot "+id)
	}
	for id := range d.watchers {
		left = append(left, "watcher "+id)
	}
	return left
}

// inDepot is a path in the ./final of a running program of the fake engine.
func (c *fakeContainer) inDepot(name string) string {
	c.engine.mu.Lock()
	defer c.engine.mu.Unlock()
	return path.Join(strings.TrimSuffix(c.engine.mounts[RoleFinal], "/"), name)
}
