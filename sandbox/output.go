package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/sandbox/outcome"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/stream"

	"github.com/evalbox/evalbox/result"
)

// livePatience is how long a live writer may stand still after the end.
const livePatience = 5 * time.Second

// output is one recorded stream.
type output struct {
	*stream.Recorder
	text *result.HeadTail
	// again is the recorded file, opened for the live reader.
	again *os.File
}

// openOutput makes the files of the record and what reads the streams.
func (a *attempt) openOutput() error {
	a.stops = make(chan outcome.StopReason, 1)
	job := a.spec.Job
	outFile, outAgain, err := a.openLog(record.StdoutFile)
	if err != nil {
		return err
	}
	errFile, errAgain, err := a.openLog(record.StderrFile)
	if err != nil {
		return errors.Join(err, outFile.Close(), outAgain.Close())
	}
	if a.io.Stdout != nil || a.io.Stderr != nil {
		a.live = stream.NewLive(a.io.Stdout, a.io.Stderr, outAgain, errAgain)
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
		return nil, nil, record.StateError(path, "cannot be made", err)
	}
	if read, err = os.Open(path); err != nil {
		return nil, nil, errors.Join(record.StateError(path, "cannot be read", err), write.Close())
	}
	return write, read, nil
}

// countOutput ends a run that prints without end, if it was asked to.
func (a *attempt) countOutput(n int64) {
	total := a.written.Add(n)
	if limit := a.spec.Job.OutputLimitBytes; limit > 0 && total > limit {
		a.askStop(outcome.StopOutputLimit)
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
	for name, out := range map[string]*output{record.StdoutFile: a.stdout, record.StderrFile: a.stderr} {
		if out == nil {
			continue
		}
		if err := out.Close(); err != nil {
			warnings = append(warnings, name+" is incomplete: "+fsx.Cause(err).Error())
		}
		_ = out.again.Close() // was only read
	}
	return warnings
}
