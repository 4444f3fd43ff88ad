package evaluate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/evalbox/evalbox/internal/brief"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox"
)

// resultLines is the form of a results file. Every line begins so, since the schema is the first
// field.
var resultLines = fsx.Lines{Start: `{"schema":"` + ResultSchemaV1 + `"`, Max: 16 << 20, Sync: true}

// resultsError is a results file that cannot be used.
func resultsError(path string, line int, err error) error {
	hint := "a results file has one evaluation per line, as a batch writes them; name another file, or fix the line"
	if errors.Is(err, sandbox.ErrBusy) {
		hint = "another batch writes it: wait for its end, or name another file"
	}
	return &FileError{What: "results", Path: path, Line: line, Rule: fsx.Cause(err).Error(), Err: err, hint: hint}
}

// ReadReport is the content of a results file.
type ReadReport struct {
	// Results are in the order of the lines.
	Results []Result
	// Torn is the number of the last line when it was cut, as a crash does; 0 when it was not. Such
	// a line is not a result.
	Torn int
	size int64 // where the whole lines end
}

// ReadOptions say how a results file is read. The zero value reads all of it.
type ReadOptions struct {
	// Brief leaves out the output of scripts and graders: stdout, stderr, tracebacks and error
	// summaries are empty. Memory then does not grow with the output.
	Brief bool
}

// ReadResults reads a results file, which must be a regular file. A last line that was cut is left
// out and reported; any other line that is not a result is an error with its number.
func ReadResults(path string, opts ReadOptions) (ReadReport, error) {
	file, err := fsx.Open(path)
	if err != nil {
		return ReadReport{}, resultsError(path, 0, err)
	}
	defer file.Close()
	return readResults(file, path, opts)
}

func readResults(r io.Reader, path string, opts ReadOptions) (ReadReport, error) {
	var report ReadReport
	for line, err := range resultLines.Read(r) {
		if err != nil {
			return report, resultsError(path, line.Number, err)
		}
		if len(bytes.TrimSpace(line.Text)) > 0 || line.Torn {
			res, err := decodeLine(line.Text, opts)
			if (err != nil || line.Torn) && line.Last && resultLines.Ours(line.Text) {
				// Also a line that is complete but for its end: the next one would be written behind it.
				report.Torn = line.Number
				return report, nil
			}
			if err == nil && line.Torn {
				err = errors.New("does not end")
			}
			if err != nil {
				return report, resultsError(path, line.Number, err)
			}
			report.Results = append(report.Results, res)
		}
		report.size = line.End
	}
	return report, nil
}

// decodeLine reads a line of a results file.
func decodeLine(text []byte, opts ReadOptions) (Result, error) {
	if !opts.Brief {
		return decodeResult(text)
	}
	text, err := brief.Members(text, func(key string) bool {
		return key != "stdout" && key != "stderr" && key != "error_traceback" && key != "error_summary"
	})
	if err != nil {
		return Result{}, fmt.Errorf("is not an evaluation: %w", err)
	}
	r, err := decodeResult(text)
	return r.brief(), err
}

// ResultsFile is a results file that is open for writing. Its methods are not to be called
// concurrently. No other process can open it for writing meanwhile.
type ResultsFile struct {
	path string
	file *os.File
	lock io.Closer
}

// OpenResults opens a results file for writing, which is created if it is missing, and returns its
// content. A last line that was cut is reported and removed, but only if it is a line of a
// results file: a file of another kind is refused and stays as it is. A file that another process
// is writing is [sandbox.ErrBusy].
func OpenResults(path string, opts ReadOptions) (*ResultsFile, ReadReport, error) {
	file, err := fsx.OpenAppend(path, 0o644)
	if err != nil {
		return nil, ReadReport{}, resultsError(path, 0, err)
	}
	r := &ResultsFile{path: path, file: file}
	report, err := r.open(opts)
	if err != nil {
		return nil, ReadReport{}, errors.Join(err, r.Close())
	}
	return r, report, nil
}

func (r *ResultsFile) open(opts ReadOptions) (report ReadReport, err error) {
	if r.lock, err = fsx.LockPath(r.path); err != nil {
		if errors.Is(err, fsx.ErrLocked) {
			err = sandbox.ErrBusy
		}
		return report, resultsError(r.path, 0, err)
	}
	report, err = readResults(r.file, r.path, opts)
	if err == nil && report.Torn > 0 {
		if err = errors.Join(r.file.Truncate(report.size), r.file.Sync()); err != nil {
			err = resultsError(r.path, 0, err)
		}
	}
	return report, err
}

// Append writes [Result.Bounded] and returns when it is on the disk. A score that is not finite,
// which JSON cannot carry, is refused.
func (r *ResultsFile) Append(res Result) error {
	text, err := json.Marshal(res.Bounded())
	if err == nil {
		err = resultLines.Append(r.file, text)
	}
	if err != nil {
		return resultsError(r.path, 0, err)
	}
	return nil
}

// Close releases the file.
func (r *ResultsFile) Close() error {
	err := r.file.Close()
	if r.lock != nil {
		err = errors.Join(err, r.lock.Close())
	}
	return err
}

// Key tells results of different scripts apart: two with the same name, script (as it was before
// any repair), seed, repetition and resource are of the same.
func (r Result) Key() string { return r.slot() + "\x00" + r.version() }

// slot is the place of a result in a batch, or in a round of a [Halving].
func (r Result) slot() string { return r.place() + "\x00" + strconv.Itoa(r.Resource) }

// place is the place of a result in a leaderboard: name, seed and repetition.
func (r Result) place() string {
	seed := ""
	if r.Seed != nil {
		seed = strconv.FormatUint(uint64(*r.Seed), 10)
	}
	return r.Name + "\x00" + seed + "\x00" + strconv.Itoa(r.Repetition)
}

// version is the hash of the script as it was before any repair.
func (r Result) version() string { return cmp.Or(r.OriginalSHA256, r.ScriptSHA256) }

// jobKey is equal for results of the same script that was evaluated in the same way.
func (r Result) jobKey() string { return r.Key() + "\x00" + r.CompetitionID + "\x00" + r.SetupSHA256 }

// Replaced counts the results that another one of the same name, seed, repetition and competition
// replaces.
type Replaced struct {
	// Repeated are of the same script, evaluated in the same way, Setup in another way; Edited are of
	// another version of the script.
	Repeated, Setup, Edited int
}

// All is the sum.
func (r Replaced) All() int { return r.Repeated + r.Setup + r.Edited }

// Latest returns the results of a results file that count: of each name, seed, repetition and
// competition one, in the order in which they came first. It is of the script's last version, and
// of that the last conclusive result, or else the last one. Conclusive results do not become
// unknown by a later try. Of the rounds of a [Halving] it is the last one; the others are not counted as
// replaced.
func Latest(results []Result) (latest []Result, replaced Replaced) {
	at := map[string]int{}
	for _, r := range results {
		key := r.CompetitionID + "\x00" + r.place()
		i, there := at[key]
		if !there {
			at[key] = len(latest)
			latest = append(latest, r)
			continue
		}
		before := latest[i]
		switch {
		case before.version() != r.version():
			replaced.Edited++
		case before.Resource != r.Resource:
		case before.SetupSHA256 != r.SetupSHA256:
			replaced.Setup++
		default:
			replaced.Repeated++
		}
		if before.version() != r.version() || r.Conclusive() || !before.Conclusive() {
			latest[i] = r
		}
	}
	return latest, replaced
}

// Competitions returns the competitions of results, in the order in which they come first. Scores
// of different ones cannot be compared.
func Competitions(results []Result) []string {
	var ids []string
	for _, r := range results {
		if !slices.Contains(ids, r.CompetitionID) {
			ids = append(ids, r.CompetitionID)
		}
	}
	return ids
}
