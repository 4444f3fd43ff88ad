package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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

// maxBytes bounds the file: a point of 64 metrics has up to 6 KiB.
const maxBytes = 8 << 20

// maxGroups bounds the sets of names that are thinned by themselves.
const maxGroups = 256

// A Recorder writes the points of one run. Methods may be called concurrently.
type Recorder struct {
	mu    sync.Mutex
	path  string
	file  *os.File // nil until the first point
	err   error    // the first one; nothing is written after it
	size  int64
	count [2]int        // points in the file: measurements, metrics of the program
	every [2]int64      // one of this many is kept
	seen  map[key]int64 // points of each group
	// index is that of the last line of metrics that another process has recorded.
	index int64
	// last is the last point of the program that was left out.
	last *Point
	sum  sum
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

// New returns a recorder for the record in dir. With resume, another process may have recorded the
// beginning of the run.
func New(dir string, resume bool) *Recorder {
	r := &Recorder{path: filepath.Join(dir, File), every: [2]int64{1, 1}, seen: map[key]int64{}}
	if !resume {
		return r
	}
	for p, err := range Read(dir) {
		if err != nil {
			r.err = err
			break
		}
		r.count[p.key().kind]++
		r.index = max(r.index, p.Index)
		r.sum.measure(p)
	}
	if r.count != [2]int{} && r.err == nil {
		r.open()
	}
	return r
}

// open opens the file, and removes a torn last line.
func (r *Recorder) open() {
	file, err := fsx.OpenAppend(r.path, 0o600)
	if err == nil {
		var info fs.FileInfo
		if info, err = file.Stat(); err == nil {
			r.size = info.Size()
		}
		r.file = file
	}
	r.err = err
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
	k := p.key()
	if _, ok := r.seen[k]; !ok && len(r.seen) >= maxGroups {
		k.names = ""
	}
	r.seen[k]++
	if k.kind == printed {
		r.last = nil
		if (r.seen[k]-1)%r.every[printed] != 0 {
			r.last = &p
			return
		}
	}
	r.write(p)
	if r.err == nil && (r.count[k.kind] >= MaxPoints || r.size > maxBytes) {
		r.err = r.thin(k.kind)
	}
}

// write appends a point to the file.
func (r *Recorder) write(p Point) {
	if r.file == nil && r.err == nil {
		r.open()
	}
	if r.err != nil {
		return
	}
	line, err := json.Marshal(p)
	if err == nil {
		err = lines.Append(r.file, line)
	}
	if r.err = err; err == nil {
		r.size += int64(len(line)) + 1
		r.count[p.key().kind]++
	}
}

// thin leaves out every second point of each group of a kind, and from now on every second new one.
// A reader sees the file before or after.
func (r *Recorder) thin(kind int) error {
	var kept []byte
	position := map[key]int{}
	count := 0
	for p, err := range Read(filepath.Dir(r.path)) {
		if err != nil {
			return err
		}
		if k := p.key(); k.kind == kind {
			position[k]++
			if position[k]%2 == 0 {
				continue
			}
			count++
		}
		line, err := json.Marshal(p)
		if err != nil {
			return err
		}
		kept = append(append(kept, line...), '\n')
	}
	err := errors.Join(r.file.Close(), fsx.WriteFile(r.path, kept, 0o600, false))
	r.file = nil
	if err != nil {
		return err
	}
	r.count[kind] = count
	r.every[kind] *= 2
	clear(r.seen)
	return nil
}

// Every returns how many of the moments at which a measurement is due are left out: 1 for none, 2 if
// it is every second one, and so on.
func (r *Recorder) Every() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.every[measured]
}

// Close ends the file and returns the summary, with the metrics that the program printed; nil if there
// is nothing to sum up. The error says why the file is incomplete.
func (r *Recorder) Close(custom []result.CustomMetric, rejected int64) (*result.Metrics, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil {
		r.write(*r.last)
	}
	if r.file != nil {
		r.err = errors.Join(r.err, r.file.Close())
		r.file = nil
	}
	if r.err != nil {
		r.err = fmt.Errorf("%s is incomplete: %w", File, fsx.Cause(r.err))
	}
	if r.count == [2]int{} && len(custom) == 0 && rejected == 0 {
		return nil, r.err
	}
	m := r.sum.result()
	m.Points = r.count[measured] + r.count[printed]
	m.Custom, m.Rejected = append([]result.CustomMetric{}, custom...), rejected
	return m, r.err
}
