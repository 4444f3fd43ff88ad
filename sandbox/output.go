package sandbox

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/internal/stream"
)

const (
	// drainPatience is how long the streams may stay open after the program
	// has ended. The engine itself gives up after 12 s.
	drainPatience = 15 * time.Second
	// livePatience is how long a live writer may stand still after the end.
	livePatience = 5 * time.Second
)

// output is one recorded stream.
type output struct {
	*stream.Recorder
	text *result.HeadTail
	// again is the recorded file, opened for the live reader.
	again *os.File
}

// openOutput makes the files of the record and what reads the streams.
func (a *attempt) openOutput() error {
	a.stops = make(chan stopReason, 1)
	a.attached = make(chan Streams, 1)
	a.noMore = make(chan struct{})
	a.readerDone = make(chan struct{})

	job := a.spec.Job
	outFile, outAgain, err := a.openLog(stdoutFile)
	if err != nil {
		return err
	}
	errFile, errAgain, err := a.openLog(stderrFile)
	if err != nil {
		return errors.Join(err, outFile.Close(), outAgain.Close())
	}
	if a.req.Stdout != nil || a.req.Stderr != nil {
		a.live = stream.NewLive(a.req.Stdout, a.req.Stderr, outAgain, errAgain)
	}
	a.stdout = &output{text: result.NewHeadTail(int(job.CaptureStdoutBytes)), again: outAgain}
	a.stdout.Recorder = stream.NewRecorder(outFile, job.StreamFileBytes, a.live, 0, a.countOutput, a.gpus.watching(0, a.stdout.text, &a.score)...)
	a.stderr = &output{text: result.NewHeadTail(int(job.CaptureStderrBytes)), again: errAgain}
	a.stderr.Recorder = stream.NewRecorder(errFile, job.StreamFileBytes, a.live, 1, a.countOutput, a.gpus.watching(1, a.stderr.text, &a.traceback)...)
	return nil
}

// openLog makes one file of the record, open for writing and for reading.
func (a *attempt) openLog(name string) (write, read *os.File, err error) {
	path := filepath.Join(a.work.record, name)
	if write, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
		return nil, nil, stateError(path, "cannot be made", err)
	}
	if read, err = os.Open(path); err != nil {
		return nil, nil, errors.Join(stateError(path, "cannot be read", err), write.Close())
	}
	return write, read, nil
}

// countOutput ends a run that prints without end, if it was asked to.
func (a *attempt) countOutput(n int64) {
	total := a.written.Add(n)
	if limit := a.spec.Job.OutputLimitBytes; limit > 0 && total > limit {
		a.askStop(stopOutputLimit)
	}
}

// readStreams starts the reader. It reads whatever happens downstream: a client
// that stops reading wedges its container, and with it kill, inspect and remove.
func (a *attempt) readStreams() {
	a.reading = true
	go func() {
		defer close(a.readerDone)
		a.read(a.streams)
		for {
			select {
			case again := <-a.attached:
				a.read(again)
			case <-a.noMore:
				select {
				case again := <-a.attached:
					a.read(again)
				default:
				}
				return
			}
		}
	}()
}

// read copies one connection to its end.
func (a *attempt) read(s Streams) {
	a.currentMu.Lock()
	a.current = s
	a.currentMu.Unlock()
	if err := s.Copy(a.stdout, a.stderr); err != nil {
		a.log.Debug("reading output ended early", logError, err)
	}
	// The streams end a moment before the kernel forgets the container's
	// counters.
	a.usage.sample()
	_ = s.Close() // read to its end
}

// feedStdin passes the caller's stdin on. The copy may outlive the run by one
// blocked Read of the caller's reader.
func (a *attempt) feedStdin() {
	to := a.streams.Stdin()
	if to == nil || a.req.Stdin == nil {
		return
	}
	go func() {
		// A program that does not read its stdin breaks the pipe; that is its
		// own business.
		_, _ = io.Copy(to, a.req.Stdin)
		_ = to.Close()
	}()
}

// drain waits for the last byte of the streams. It reports whether all of it
// came.
func (a *attempt) drain() bool {
	close(a.noMore)
	timer := time.NewTimer(drainPatience)
	defer timer.Stop()
	select {
	case <-a.readerDone:
		return true
	case <-timer.C:
	}
	a.cutStreams()
	<-a.readerDone
	return false
}

// cutStreams breaks the connection that is being read: a stuck one can hold up
// the engine's other calls, and our end.
func (a *attempt) cutStreams() {
	a.currentMu.Lock()
	defer a.currentMu.Unlock()
	if a.current == nil {
		a.current = a.streams
	}
	_ = a.current.Close()
	select {
	case again := <-a.attached:
		_ = again.Close()
	default:
	}
}

// closeOutput finishes the live output and the files. What it reports is for the
// result's warnings: the program's run is not to blame for it.
func (a *attempt) closeOutput() []string {
	var warnings []string
	if a.live != nil {
		if err := a.live.Finish(livePatience); err != nil {
			warnings = append(warnings, "live output: "+err.Error())
		}
	}
	for name, out := range map[string]*output{stdoutFile: a.stdout, stderrFile: a.stderr} {
		if out == nil {
			continue
		}
		if err := out.Close(); err != nil {
			warnings = append(warnings, name+" is incomplete: "+cause(err).Error())
		}
		_ = out.again.Close() // was only read
	}
	return warnings
}
