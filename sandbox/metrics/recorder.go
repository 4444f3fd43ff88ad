package metrics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
)

// maxBytes bounds the file, and with it the memory of a recorder: a point of 64 metrics has up to 6 KiB.
const maxBytes = 8 << 20

// maxGroups bounds the sets of names that are thinned by themselves.
const maxGroups = 256

// A Recorder has the points of one run in memory, and writes them to the file in a goroutine of its own:
// who records a point reads the output of a program, which must not wait for a disk. Methods may be
// called concurrently.
type Recorder struct {
	path string
	file *os.File // nil until the first point; only the writer and Close use it
	// at, for tests, is called before the disk is used.
	at func()
	// writer is the goroutine that writes, as long as there is anything to write.
	writer sync.WaitGroup

	mu      sync.Mutex
	writing bool
	// points are what the file has, or gets. written of them are in it; thinned says that it has to be
	// replaced, because points were left out that are in it.
	points  []line
	written int
	thinned bool
	err     error // the first one; nothing is written after it
	size    int64
	count   [2]int        // points: measurements, metrics of the program
	every   [2]int64      // one of this many is kept
	seen    map[key]int64 // points of each group
	// index is that of the last line of metrics that another process has recorded.
	index int64
	// last is the last point of the program that was left out.
	last *Point
	sum  sum
}

// line is one point in the file, without the end of the line.
type line struct {
	key
	text []byte
}

// key is a group of points that are thinned by themselves: measurements, or metrics of the same
// names.
type key struct {
	kind  int
	names string
}

const (
	measured = iota
	printed
)

func (p Point) key() key {
	if p.Usage != nil {
		return key{kind: measured}
	}
	return key{printed, strings.Join(slices.Sorted(maps.Keys(p.Values)), "\x00")}
}

// groupOf returns the group that is counted for a point: those beyond maxGroups are one.
func groupOf(k key, counts map[key]int64) key {
	if _, ok := counts[k]; !ok && len(counts) >= maxGroups {
		k.names = ""
	}
	return k
}

// New returns a recorder for the record in dir. With resume, another process may have recorded the
// beginning of the run.
func New(dir string, resume bool) *Recorder {
	r := &Recorder{path: filepath.Join(dir, File), every: [2]int64{1, 1}, seen: map[key]int64{}}
	if !resume {
		return r
	}
	for p, err := range Read(dir) {
		if err == nil {
			err = r.keep(p)
		}
		if err != nil {
			r.err = err
			break
		}
		r.index = max(r.index, p.Index)
		r.sum.measure(p)
	}
	r.written = len(r.points)
	return r
}

// Measure records a measurement of the machine, seconds after the start of the program.
func (r *Recorder) Measure(seconds float64, u Usage) {
	if u.CPUs != nil {
		u.CPUs = new(rounded(*u.CPUs))
	}
	r.add(Point{Seconds: rounded(seconds), Usage: &u})
}

// Print records a line of metrics that the program printed. It does not keep the line.
func (r *Recorder) Print(seconds float64, line result.MetricLine) {
	values := make(map[string]Number, len(line.Values))
	for name, value := range line.Values {
		values[name] = Number(value)
	}
	r.add(Point{Seconds: rounded(seconds), Index: line.Index, Step: line.Step, Values: values})
}

// rounded keeps 3 decimals: a millisecond, or a thousandth of a processor.
func rounded(f float64) float64 { return math.Round(f*1000) / 1000 }

func (r *Recorder) add(p Point) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Usage == nil && p.Index <= r.index {
		return // it was recorded by the process before
	}
	p.Schema = SchemaV1
	r.sum.measure(p)
	k := groupOf(p.key(), r.seen)
	r.seen[k]++
	if k.kind == printed {
		r.last = nil
		if (r.seen[k]-1)%r.every[printed] != 0 {
			r.last = &p
			return
		}
	}
	r.record(p)
	if r.err == nil && (r.count[k.kind] >= MaxPoints || r.size > maxBytes) {
		r.thin(k.kind)
	}
}

// record keeps a point, and has it written. The lock is held.
func (r *Recorder) record(p Point) {
	if r.err == nil {
		r.err = r.keep(p)
	}
	if r.err == nil && !r.writing {
		r.writing = true
		r.writer.Go(r.write)
	}
}

// keep adds a point to the points of the file. The lock is held.
func (r *Recorder) keep(p Point) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	k := p.key()
	r.points = append(r.points, line{k, text})
	r.size += int64(len(text)) + 1
	r.count[k.kind]++
	return nil
}

// thin leaves out every second point of each group of a kind, and from now on every second new one. The
// lock is held.
func (r *Recorder) thin(kind int) {
	all := r.points
	r.points, r.thinned, r.size, r.count[kind] = nil, true, 0, 0 // the writer may be reading the old ones
	position := map[key]int64{}
	for _, l := range all {
		if l.kind == kind {
			k := groupOf(l.key, position)
			if position[k]++; position[k]%2 == 0 {
				continue
			}
			r.count[kind]++
		}
		r.points = append(r.points, l)
		r.size += int64(len(l.text)) + 1
	}
	r.every[kind] *= 2
	clear(r.seen)
}

// write brings the file up to the points, until nothing is left to write.
func (r *Recorder) write() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.err == nil && (r.thinned || r.written < len(r.points)) {
		replace, all := r.thinned, r.points
		news := all
		if !replace {
			news = all[r.written:]
		}
		r.thinned = false
		r.mu.Unlock()
		var texts [][]byte
		for _, l := range news {
			texts = append(texts, l.text)
		}
		err := r.put(texts, replace)
		r.mu.Lock()
		if r.err = err; err == nil {
			r.written = len(all)
		}
	}
	r.writing = false
}

// put appends lines to the file, or replaces its lines. Who reads the file sees it before or
// after.
func (r *Recorder) put(texts [][]byte, replace bool) (err error) {
	if r.at != nil {
		r.at()
	}
	if replace {
		whole := append(bytes.Join(texts, []byte("\n")), '\n')
		return errors.Join(r.close(), fsx.WriteFile(r.path, whole, 0o600, false))
	}
	if r.file == nil {
		if r.file, err = fsx.OpenAppend(r.path, 0o600); err != nil {
			return err
		}
	}
	return lines.Append(r.file, texts...) // it removes a torn last line
}

func (r *Recorder) close() (err error) {
	if r.file != nil {
		err = r.file.Close()
	}
	r.file = nil
	return err
}

// Every returns how many of the moments at which a measurement is due are left out: 1 for none, 2 if
// it is every second one, and so on.
func (r *Recorder) Every() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.every[measured]
}

// Close writes what is left, ends the file and returns the summary, with the metrics that the program
// printed; nil if there is nothing to sum up. The error says why the file is incomplete.
func (r *Recorder) Close(custom []result.CustomMetric, rejected int64) (*result.Metrics, error) {
	r.mu.Lock()
	if r.last != nil {
		r.record(*r.last)
	}
	r.mu.Unlock()
	r.writer.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err = errors.Join(r.err, r.close()); r.err != nil {
		r.err = fmt.Errorf("%s is incomplete: %w", File, fsx.Cause(r.err))
	}
	if r.written == 0 && len(custom) == 0 && rejected == 0 {
		return nil, r.err
	}
	m := r.sum.result()
	m.Points = r.written
	m.Custom, m.Rejected = append([]result.CustomMetric{}, custom...), rejected
	return m, r.err
}
