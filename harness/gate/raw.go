package gate

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/internal/logline"
	"github.com/evalbox/evalbox/harness/gate/report"
	"github.com/evalbox/evalbox/harness/gate/testreport"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

const (
	// maxTail bounds the end of a log that [Report.Tail] reads, and maxTailLine a line of it, in
	// bytes.
	maxTail     = 256 << 10
	maxTailLine = 1 << 10
	// maxResult bounds the raw result of a gate, in bytes.
	maxResult = 64 << 20
)

// Tail is the end of the output of a gate, at most this number of lines. They are untrusted. Lines
// without text are left out. The end of stderr comes last and gets half of the lines, or more
// if stdout leaves them. Output of go test is what it would have printed without -json.
func (r Report) Tail(gate, lines int) (tail []string, err error) {
	err = fsx.InRoot(r.Dir, func(root *os.Root) error {
		g := r.gate(gate)
		out, err := lastLines(root, evidence.RawFile("", gate, "stdout.log"), testreport.MayHaveEvents(g))
		if err != nil {
			return err
		}
		more, err := lastLines(root, evidence.RawFile("", gate, "stderr.log"), false)
		if err != nil {
			return err
		}
		more = last(more, max(lines/2, lines-len(out)))
		tail = append(last(out, lines-len(more)), more...)
		return nil
	})
	return tail, err
}

func last(lines []string, most int) []string { return lines[max(0, len(lines)-most):] }

// gate is a gate of the manifest; a gate without anything if there is none.
func (r Report) gate(index int) evidence.Gate {
	for _, g := range r.Manifest.Gates {
		if g.Index == index {
			return g
		}
	}
	return evidence.Gate{}
}

// lastLines reads the end of a log; nothing if there is none.
func lastLines(root *os.Root, name string, events bool) (lines []string, err error) {
	file, info, err := fsx.OpenIn(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	from := max(0, info.Size()-maxTail)
	end, err := io.ReadAll(io.NewSectionReader(file, from, maxTail))
	if err != nil {
		return nil, err
	}
	if from > 0 {
		_, end, _ = bytes.Cut(end, []byte("\n")) // the line that is cut
	}
	if events {
		var plain bytes.Buffer
		if err := testreport.CopyText(&plain, bytes.NewReader(end)); err != nil {
			return nil, err
		}
		end = plain.Bytes()
	}
	for piece := range bytes.Lines(end) {
		line := strings.TrimRight(string(logline.Plain(piece)), " \t")
		line = line[strings.LastIndexByte(line, '\r')+1:] // what a terminal shows of it
		if line != "" {
			lines = append(lines, text.Short(line, maxTailLine))
		}
	}
	return lines, nil
}

// Times are how long the gates and their test cases took, from the raw results and reports,
// because the other evidence has no times. What cannot be read has none.
func (r Report) Times(ctx context.Context) map[int]report.Times {
	times := map[int]report.Times{}
	_ = fsx.InRoot(r.Dir, func(root *os.Root) error { // a report without times is a report
		for _, c := range r.Tests.Commands {
			var res result.Result
			if evidence.Read(root, evidence.RawFile("", c.Index, "result.json"), maxResult, &res) != nil {
				continue
			}
			times[c.Index] = report.Times{Seconds: res.DurationSeconds, Cases: caseTimes(ctx, root, r.gate(c.Index))}
		}
		return nil
	})
	return times
}

// caseTimes reads the report of a gate again.
func caseTimes(ctx context.Context, root *os.Root, g evidence.Gate) map[string]float64 {
	var in testreport.Input
	for name, into := range map[string]*io.Reader{"stdout.log": &in.Stdout, "report": &in.Report} {
		if file, _, err := fsx.OpenIn(root, evidence.RawFile("", g.Index, name)); err == nil {
			defer file.Close()
			*into = fsx.WithContext(ctx, file)
		}
	}
	return testreport.Parse(g, in).Seconds
}
