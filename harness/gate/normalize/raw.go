package normalize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/result"
)

// maxResult bounds the result of one gate, in bytes.
const maxResult = 64 << 20

// raw is what node 2 left of one gate.
type raw struct {
	gate evidence.Gate
	// set is the set of runs that it belongs to.
	set    string
	result result.Result
}

// readRaw reads the result of a gate of a set of runs. It is nil for a gate
// that never ran.
func readRaw(root *os.Root, set string, g evidence.Gate) (*raw, error) {
	r := &raw{gate: g, set: set}
	name := evidence.RawFile(set, g.Index, "result.json")
	err := evidence.Read(root, name, maxResult, &r.result)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("result of gate %d, %s: %w", g.Index, name, err)
	}
	return r, nil
}

// exitCode is the code that the command ended with; nil if it has none.
func (r *raw) exitCode() *int {
	if r.result.ExitCode < 0 {
		return nil
	}
	code := r.result.ExitCode
	return &code
}

func (r *raw) started() bool { return r.result.Status != result.StatusStartFailed }

// stream is a raw stream or report; nil if it was not left.
func (r *raw) stream(ctx context.Context, root *os.Root, name string) (*stream, error) {
	file, info, err := fsx.OpenIn(root, evidence.RawFile(r.set, r.gate.Index, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("raw log of gate %d: %w", r.gate.Index, err)
	}
	return &stream{Reader: fsx.WithContext(ctx, file), file: file, size: info.Size()}, nil
}

// stream reads a file and ends with a context.
type stream struct {
	io.Reader
	file *os.File
	size int64
}

// reader is the stream as an interface, nil without one.
func (s *stream) reader() io.Reader {
	if s == nil {
		return nil
	}
	return s
}

// close is safe without a stream.
func (s *stream) close() {
	if s != nil {
		s.file.Close()
	}
}

// complete says that the raw logs have every byte that the command wrote.
func (r *raw) complete(ctx context.Context, root *os.Root) (bool, error) {
	whole := r.result.OutputComplete
	for _, s := range []struct {
		name  string
		wrote int64
	}{{"stdout.log", r.result.StdoutBytes}, {"stderr.log", r.result.StderrBytes}} {
		file, err := r.stream(ctx, root, s.name)
		if err != nil {
			return false, err
		}
		size := int64(0)
		if file != nil {
			size = file.size
		}
		whole = whole && size == s.wrote
		file.close()
	}
	return whole, nil
}
