package stream

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
)

// liveTimeout is how long a live writer may stall after the program's end.
const liveTimeout = 5 * time.Second

// Options of an [Output]. All sizes are in bytes.
type Options struct {
	// FileBytes bounds each file of the record.
	FileBytes int64
	// CaptureStdout and CaptureStderr bound the texts.
	CaptureStdout, CaptureStderr int
	// LimitBytes bounds the output of both streams together; 0 means no limit. Over is
	// called for every write beyond it, and must not block.
	LimitBytes int64
	Over       func()
	// LiveStdout and LiveStderr get the output while it is recorded; both may be nil.
	LiveStdout, LiveStderr io.Writer
	// WatchStdout and WatchStderr get every byte of the streams. They must not block or
	// fail.
	WatchStdout, WatchStderr []io.Writer
	// Resume goes on with the files of another process, which died while it recorded the
	// same streams. The streams come again from their beginning.
	Resume bool
}

// Output records both streams of one program.
type Output struct {
	Stdout, Stderr *Stream
	live           *liveOutput
	written        atomic.Int64
}

// Stream is one recorded stream.
type Stream struct {
	*recorder
	// Text is the beginning and the end of the stream.
	Text *result.HeadTail
	// Name is the name of its file in the record.
	Name string
	// again is the recorded file, opened for the live reader.
	again *os.File
}

// OpenOutput makes the files of the streams in a record. The caller closes the Output.
func OpenOutput(dir string, o Options) (*Output, error) {
	outFile, outAgain, err := openLog(filepath.Join(dir, record.StdoutFile), o.Resume)
	if err != nil {
		return nil, err
	}
	errFile, errAgain, err := openLog(filepath.Join(dir, record.StderrFile), o.Resume)
	if err != nil {
		return nil, errors.Join(err, outFile.Close(), outAgain.Close())
	}
	out := &Output{
		Stdout: &Stream{Text: result.NewHeadTail(o.CaptureStdout), Name: record.StdoutFile, again: outAgain},
		Stderr: &Stream{Text: result.NewHeadTail(o.CaptureStderr), Name: record.StderrFile, again: errAgain},
	}
	if o.LiveStdout != nil || o.LiveStderr != nil {
		out.live = newLiveOutput(o.LiveStdout, o.LiveStderr, outAgain, errAgain)
	}
	count := func(n int64) {
		if total := out.written.Add(n); o.LimitBytes > 0 && total > o.LimitBytes {
			o.Over()
		}
	}
	out.Stdout.recorder = newRecorder(outFile, o.FileBytes, out.live, 0, count, append([]io.Writer{out.Stdout.Text}, o.WatchStdout...)...)
	out.Stderr.recorder = newRecorder(errFile, o.FileBytes, out.live, 1, count, append([]io.Writer{out.Stderr.Text}, o.WatchStderr...)...)
	if o.Resume {
		for _, s := range []*Stream{out.Stdout, out.Stderr} {
			if err := s.resumeFile(); err != nil {
				out.Close()
				return nil, record.StateError(filepath.Join(dir, s.Name), "cannot be read", err)
			}
		}
	}
	return out, nil
}

// resumeFile takes what the file holds.
func (s *Stream) resumeFile() error {
	info, err := s.again.Stat()
	if err == nil {
		s.resume(s.again, info.Size())
	}
	return err
}

// openLog makes one file of the record, open for writing and for reading. To resume, it may
// exist.
func openLog(path string, resume bool) (write, read *os.File, err error) {
	how := os.O_EXCL
	if resume {
		how = os.O_APPEND
	}
	if write, err = os.OpenFile(path, os.O_CREATE|how|os.O_WRONLY, 0o600); err != nil {
		return nil, nil, record.StateError(path, "cannot be made", err)
	}
	if read, err = os.Open(path); err != nil {
		return nil, nil, errors.Join(record.StateError(path, "cannot be read", err), write.Close())
	}
	return write, read, nil
}

// Close finishes the live output and the files. It returns warnings for the result: the
// program is not to blame for them. A nil Output has nothing to close.
func (o *Output) Close() (warnings []string) {
	if o == nil {
		return nil
	}
	if o.live != nil {
		if err := o.live.finish(liveTimeout); err != nil {
			warnings = append(warnings, "live output: "+err.Error())
		}
	}
	for _, s := range []*Stream{o.Stdout, o.Stderr} {
		if err := s.recorder.Close(); err != nil {
			warnings = append(warnings, s.Name+" is incomplete: "+fsx.Cause(err).Error())
		}
		_ = s.again.Close() // was only read
	}
	return warnings
}
