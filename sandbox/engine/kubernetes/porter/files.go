package porter

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"time"
)

// errSum means that an archive did not arrive as it was sent.
var errSum = errors.New("the archive did not arrive as it was sent: its SHA-256 differs")

// retry repeats do until it succeeds, fails for good, or fails for as long as budget without
// progress.
func retry(ctx context.Context, dial Dial, budget time.Duration, do func(conn io.ReadWriter) (progress bool, err error)) error {
	pace := newPacing()
	for {
		conn, err := dial(ctx)
		if err == nil {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			var progress bool
			progress, err = do(conn)
			stop()
			_ = conn.Close()
			if progress {
				pace.progress()
			}
		}
		var final *finalError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &final):
			return final.err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if err := pace.wait(ctx, budget, err); err != nil {
			return err
		}
	}
}

// finalError is an error that another connection does not cure.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// resent is how many bytes of an archive are kept to be sent again.
const resent = 8 << 20

// Fill sends an archive to the volume. An archive that breaks off is sent on from where it broke.
func Fill(ctx context.Context, dial Dial, budget time.Duration, archive io.Reader) error {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	f := &filling{archive: archive, head: Header{Channel: channelFill, Transfer: hex.EncodeToString(id)}, sum: sha256.New()}
	return retry(ctx, dial, budget, f.connection)
}

// filling is an archive that is being sent. kept are its last bytes, up to offset read.
type filling struct {
	head    Header
	archive io.Reader
	kept    []byte
	read    int64
	ended   bool
	sum     hash.Hash
}

func (f *filling) connection(conn io.ReadWriter) (progress bool, err error) {
	if err := writeHeader(conn, f.head); err != nil {
		return false, err
	}
	from, buffer := bufio.NewReader(conn), make([]byte, maxRecord)
	kind, payload, err := readRecord(from, buffer)
	var greeting hello
	if err == nil && kind != 'h' {
		err = errRecord
	}
	if err == nil {
		err = json.Unmarshal(payload, &greeting)
	}
	if err != nil {
		return false, err
	}
	if greeting.In > f.read || greeting.In < f.read-int64(len(f.kept)) {
		return false, &finalError{fmt.Errorf("the porter has %d bytes of an archive of which %d were sent: it was restarted", greeting.In, f.read)}
	}
	for rest := f.kept[int64(len(f.kept))-(f.read-greeting.In):]; len(rest) > 0; {
		n := min(len(rest), maxRecord)
		if err := writeRecord(conn, 'i', rest[:n]); err != nil {
			return progress, err
		}
		progress, rest = true, rest[n:]
	}
	for piece := make([]byte, maxRecord); !f.ended; {
		n, err := f.archive.Read(piece)
		_, _ = f.sum.Write(piece[:n])
		f.read += int64(n)
		f.kept = append(f.kept, piece[:n]...)
		if extra := len(f.kept) - 2*resent; extra > 0 {
			f.kept = append(f.kept[:0], f.kept[len(f.kept)-resent:]...)
		}
		if n > 0 {
			if err := writeRecord(conn, 'i', piece[:n]); err != nil {
				return progress, err
			}
			progress = true
		}
		if f.ended = errors.Is(err, io.EOF); err != nil && !f.ended {
			return progress, &finalError{err}
		}
	}
	if err := writeRecord(conn, 'c', nil); err != nil {
		return progress, err
	}
	if kind, payload, err = readRecord(from, buffer); err != nil {
		return progress, err
	}
	return progress, check(kind, payload, f.sum, f.read)
}

// check compares the end of a transfer with what was sent or received.
func check(kind byte, payload []byte, sum hash.Hash, n int64) error {
	var v verdict
	if kind != 'z' {
		return errRecord
	}
	if err := json.Unmarshal(payload, &v); err != nil {
		return err
	}
	switch {
	case v.Missing:
		return &finalError{fmt.Errorf("%s: %w", v.Error, fs.ErrNotExist)}
	case v.Error != "":
		return &finalError{errors.New(v.Error)}
	case v.SHA256 != hex.EncodeToString(sum.Sum(nil)) || v.Bytes != n:
		return &finalError{errSum}
	}
	return nil
}

// Fetch reads the archive of a path of the volume. One that breaks off is read on from where it
// broke; the last Read fails if it is not what the porter has sent. Close ends it early.
func Fetch(ctx context.Context, dial Dial, budget time.Duration, path string) io.ReadCloser {
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	f := &fetching{to: writer, head: Header{Channel: channelFetch, Path: path}, sum: sha256.New()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = writer.CloseWithError(retry(ctx, dial, budget, f.connection)) // never fails
	}()
	return &fetched{reader, cancel, done}
}

type fetched struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

func (f *fetched) Close() error {
	f.cancel()
	err := f.PipeReader.Close()
	<-f.done
	return err
}

type fetching struct {
	to   io.Writer
	head Header
	sum  hash.Hash
}

func (f *fetching) connection(conn io.ReadWriter) (progress bool, err error) {
	if err := writeHeader(conn, f.head); err != nil {
		return false, err
	}
	from, buffer := bufio.NewReaderSize(conn, maxRecord), make([]byte, maxRecord)
	for {
		kind, payload, err := readRecord(from, buffer)
		if err != nil {
			return progress, err
		}
		if kind != 'o' {
			return progress, check(kind, payload, f.sum, f.head.Out)
		}
		_, _ = f.sum.Write(payload)
		f.head.Out += int64(len(payload))
		if _, err := f.to.Write(payload); err != nil {
			return progress, &finalError{err} // the reader was closed
		}
		progress = true
	}
}

// Start lets the program's container start. An [fs.ErrNotExist] means that a
// directory that it needs does not exist.
func Start(ctx context.Context, dial Dial, budget time.Duration) error {
	return ask(ctx, dial, budget, channelOpen)
}

// Reach waits until the porter answers.
func Reach(ctx context.Context, dial Dial, budget time.Duration) error {
	return ask(ctx, dial, budget, channelReach)
}

func ask(ctx context.Context, dial Dial, budget time.Duration, channel string) error {
	return retry(ctx, dial, budget, func(conn io.ReadWriter) (bool, error) {
		if err := writeHeader(conn, Header{Channel: channel}); err != nil {
			return false, err
		}
		kind, payload, err := readRecord(bufio.NewReader(conn), make([]byte, maxRecord))
		if err == nil && kind != 'z' {
			err = errRecord
		}
		var v verdict
		if err == nil {
			err = json.Unmarshal(payload, &v)
		}
		if err == nil && v.Missing {
			err = &finalError{fmt.Errorf("%s: %w", v.Error, fs.ErrNotExist)}
		}
		return false, err
	})
}
