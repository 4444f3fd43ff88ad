package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox/record"
)

// logsFlags are the flags of `logs`.
type logsFlags struct {
	follow, stdout, stderr bool
	// tail is the number of lines of each stream; nil for all.
	tail *int
}

// NewLogs returns the command `logs`.
func NewLogs(a *cli.App) *cobra.Command {
	var f logsFlags
	cmd := &cobra.Command{
		Use:   "logs [flags] [RUN]",
		Short: "Print what a run printed",
		Long: `Print what a run printed: its stdout on stdout, its stderr on stderr. A terminal shows
the latter in red. Without an argument: of the last run. With --follow, go on until it ends.

The two streams of a program are recorded apart. The order between them is not: stderr
follows stdout, and with --follow each comes as it is written.

` + handleHelp,
		Example: "  sandbox logs\n  sandbox logs -f 3c4d5e\n  sandbox logs --stderr -n 20 train",
		Args:    cobra.MaximumNArgs(1),
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return logs(ctx, a, s, handleOf(args), f)
		}),
	}
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on until the run ends")
	cmd.Flags().BoolVar(&f.stdout, "stdout", false, "only its stdout")
	cmd.Flags().BoolVar(&f.stderr, "stderr", false, "only its stderr, on stdout")
	cmd.Flags().VarP(cli.Optional(&f.tail, "number", readCount), "tail", "n", "only the last lines of each stream")
	a.SettingFlags(cmd, "raw")
	return cli.TakesHandles(cmd)
}

// source is a recorded stream and where it goes.
type source struct {
	file *os.File
	out  io.Writer
}

func logs(ctx context.Context, a *cli.App, s settings.Settings, handle string, f logsFlags) error {
	store, each, err := find(s, handle)
	if err != nil {
		return err
	}
	var sources []source
	screen := a.Screen()
	add := func(path string, out io.Writer, isTerminal, red bool) error {
		file, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("run %s: opening its log: %w", each.ID, err)
		}
		from := source{file, out}
		if red {
			from.out = &painted{out: out, paint: a.Palette().Bad}
		}
		if isTerminal && !s.Raw {
			from.out = screen.Stream(from.out)
		}
		sources = append(sources, from)
		return nil
	}
	defer func() {
		for _, from := range sources {
			_ = from.file.Close() // was only read
		}
		_ = screen.End() // nothing is left to do about a terminal that went away
	}()
	both := f.stdout == f.stderr
	if both || f.stdout {
		err = add(each.StdoutPath(), a.Out, a.OutTerminal, false)
	}
	switch {
	case err != nil:
	case both:
		err = add(each.StderrPath(), a.Err, a.ErrTerminal, a.ErrTerminal && !s.Raw)
	case f.stderr:
		err = add(each.StderrPath(), a.Out, a.OutTerminal, false)
	}
	for i := 0; err == nil && f.tail != nil && i < len(sources); i++ {
		err = seekTail(sources[i].file, *f.tail)
	}
	if err != nil {
		return err
	}
	if f.follow && each.State == record.Lost {
		defer a.Say("the process of run %s died, and its log ends there; for the rest: %s", each.ID, a.RepeatFlags("sandbox adopt "+each.ID))
	}
	if f.follow {
		return follow(ctx, store, each.ID, sources)
	}
	return pass(sources)
}

// pass copies what is recorded and was not copied yet.
func pass(sources []source) error {
	for _, from := range sources {
		if _, err := io.Copy(from.out, from.file); err != nil {
			return cli.ReaderGone(err)
		}
	}
	return nil
}

// followInterval is how often a running program's log is looked at.
const followInterval = 100 * time.Millisecond

// follow copies logs until their run has ended. A record that is removed meanwhile has ended too.
func follow(ctx context.Context, store *record.Store, id string, sources []source) error {
	return untilEnd(ctx, store, id, func() error { return pass(sources) })
}

// untilEnd calls each again and again until a run has ended, and once more after that. It ends with
// the run, with its record, and with its owner.
func untilEnd(ctx context.Context, store *record.Store, id string, each func() error) error {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		// First the state, then the log: output between the two is not lost.
		state, stateErr := store.State(id)
		if err := each(); err != nil {
			return err
		}
		switch {
		case errors.Is(stateErr, record.ErrNoRecord):
			return nil
		case stateErr != nil:
			return stateErr
		case state != record.Running:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// tailChunk is how much of a log is looked at in one step from its end, in bytes.
const tailChunk = 64 << 10

// seekTail goes to the beginning of the last lines of a file. An unfinished line is a line.
func seekTail(file *os.File, lines int) error {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil || lines == 0 {
		return err
	}
	buffer := make([]byte, tailChunk)
	for at := end; at > 0; {
		chunk := buffer[:min(at, tailChunk)]
		at -= int64(len(chunk))
		if _, err := file.ReadAt(chunk, at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		for i := bytes.LastIndexByte(chunk, '\n'); i >= 0; i = bytes.LastIndexByte(chunk[:i], '\n') {
			if at+int64(i) == end-1 {
				continue // it ends the last line
			}
			if lines--; lines == 0 {
				_, err := file.Seek(at+int64(i)+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

// painted colours the lines of a stream.
type painted struct {
	out   io.Writer
	paint func(text string) string
}

func (w *painted) Write(p []byte) (int, error) {
	var text bytes.Buffer
	for line := range bytes.Lines(p) {
		body, ended := bytes.CutSuffix(line, []byte("\n"))
		if len(body) > 0 {
			text.WriteString(w.paint(string(body)))
		}
		if ended {
			text.WriteByte('\n')
		}
	}
	if _, err := w.out.Write(text.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}
