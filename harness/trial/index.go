package trial

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalbox/evalbox/internal/fsx"
)

func (l *Log) locked(do func() error) error {
	// No result is dropped because its caller gave up.
	lock, err := fsx.LockWait(context.Background(), l.dir)
	if err != nil {
		return err
	}
	return errors.Join(do(), lock.Close())
}

func (l *Log) appendIndex(line []byte) error {
	file, err := fsx.OpenAppend(l.index(), 0o600)
	if err != nil {
		return err
	}
	return errors.Join(indexLines.Append(file, line), file.Close())
}

// follow reads the new lines of the index. The first time, it also adds the results that the
// index lacks. The caller holds mu.
func (l *Log) follow() error {
	if l.known != nil {
		return l.readIndex(func(Result) {})
	}
	l.known = map[[sha256.Size]byte]string{}
	indexed := map[string]Verdict{}
	note := func(r Result) { indexed[r.Job.ID] = r.Verdict }
	err := l.readIndex(note)
	if errors.Is(err, errDamaged) { // a power cut can leave zeros; the results have all of it
		err = l.locked(func() error {
			clear(indexed)
			l.read, l.seen = 0, nil
			if err := l.readIndex(note); !errors.Is(err, errDamaged) {
				return err // another process was here
			}
			clear(indexed)
			clear(l.known)
			l.read, l.seen, l.tail = 0, nil, nil
			return os.Remove(l.index())
		})
	}
	if err == nil {
		err = l.completeIndex(indexed, note)
	}
	if err != nil {
		l.known, l.read, l.seen = nil, 0, nil // once more at the next call
	}
	return err
}

// readIndex reads the new lines of the index, and calls each for their results. A damaged
// line counts as missing.
func (l *Log) readIndex(each func(Result)) error {
	info, err := os.Stat(l.index())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || l.seen != nil && os.SameFile(info, l.seen) && info.Size() == l.seen.Size() && info.ModTime().Equal(l.seen.ModTime()) {
		return err
	}
	file, err := fsx.Open(l.index())
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return err
	}
	if !l.continues(file) { // another index has taken its place
		clear(l.known)
		l.read = 0
	}
	from := l.read
	for line, err := range indexLines.Read(io.NewSectionReader(file, from, info.Size()-from)) {
		if err != nil {
			return fmt.Errorf("%w: line %d %w", errDamaged, line.Number, err)
		}
		if line.Torn {
			break
		}
		l.read = from + line.End
		l.tail = append(l.tail[:0], line.Text...)
		r, err := decode[Result](line.Text, ResultSchemaV1)
		if err != nil {
			continue
		}
		if r.Job.Key != "" && r.Verdict.Conclusive() {
			l.known[sha256.Sum256([]byte(r.Job.Key))] = r.Job.ID
		}
		each(r)
	}
	l.seen = info
	return nil
}

// continues reports whether an index begins with the part that was read. That part ends with
// the same line at the same place: [Log.Expire] removes lines, and so moves those behind them.
func (l *Log) continues(file io.ReaderAt) bool {
	if l.read == 0 {
		return true
	}
	line := make([]byte, len(l.tail)+1)
	_, err := file.ReadAt(line, l.read-int64(len(line)))
	return err == nil && string(line) == string(l.tail)+"\n"
}

// completeIndex adds the results that the index lacks: all of them, if it was deleted, or
// those of a process that was killed between its two writes. The index may have an earlier,
// inconclusive result of the same job.
func (l *Log) completeIndex(indexed map[string]Verdict, note func(Result)) error {
	var missing []string
	err := fsx.InRoot(l.dir, func(root *os.Root) error {
		return fsx.ReadDir(context.Background(), root, jobsDir, func(id string) error {
			if indexed[id].Conclusive() {
				return nil
			}
			if _, err := root.Lstat(filepath.Join(jobsDir, id, resultFile)); err == nil {
				missing = append(missing, id)
			}
			return nil
		})
	})
	if err != nil || len(missing) == 0 {
		return err
	}
	slices.Sort(missing)
	return l.locked(func() error {
		if err := l.readIndex(note); err != nil {
			return err
		}
		for _, id := range missing {
			r, err := l.result(id)
			if err != nil || indexed[id].Conclusive() || indexed[id] == r.Verdict {
				continue // Get reports a result that cannot be read
			}
			line, err := json.Marshal(r.brief())
			if err == nil {
				err = l.appendIndex(line)
			}
			if err != nil {
				return err
			}
		}
		return l.readIndex(note)
	})
}
