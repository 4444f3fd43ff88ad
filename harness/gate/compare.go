package gate

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/fsx"
)

// Difference is one signal of a replay that is not the expected one.
type Difference struct {
	// Gate counts from 1; 0 is the whole run.
	Gate int `json:"gate"`
	// Signal is exit_code, ending, passed, outcome, log, behavior_hash, artifact or verdict. Subject is
	// the test case of an outcome, the file of an artifact, or the log if only a line of it shows the
	// difference. The verdict has the reasons that speak against a pass.
	Signal  string `json:"signal"`
	Subject string `json:"subject"`
	Want    string `json:"want"`
	Got     string `json:"got"`
}

// ReplayedCommand is how one command of a replay ended.
type ReplayedCommand struct {
	Cmd       string `json:"cmd"`
	Ending    string `json:"ending"`
	ExitCode  *int   `json:"exit_code"`
	Passed    int    `json:"passed"`
	LogSHA256 string `json:"log_sha256"`
}

// compareGates compares two passes by their signals: exits are the expected exit codes, and ran
// is how the commands of got ended. A signal that want does not have is not expected.
func compareGates(want, got evidence.Gates, exits []*int, ran []ReplayedCommand) []Difference {
	var all []Difference
	for i, c := range want.Commands {
		r := ran[i]
		add := func(signal, want, got string) {
			if want != got {
				all = append(all, Difference{Gate: i + 1, Signal: signal, Want: want, Got: got})
			}
		}
		add("exit_code", code(exits[i]), code(r.ExitCode))
		if c.Ending != "" {
			add("ending", c.Ending, r.Ending)
			add("passed", fmt.Sprint(c.Passed), fmt.Sprint(r.Passed))
		}
		if c.LogSHA256 != "" {
			add("log", c.LogSHA256, r.LogSHA256)
		}
	}
	if want.BehaviorHash != "" && want.BehaviorHash != got.BehaviorHash {
		all = append(all, Difference{Signal: "behavior_hash", Want: want.BehaviorHash, Got: got.BehaviorHash})
	}
	return append(all, compareFiles(want.Artifacts, got.Artifacts, want.Workspace != "")...)
}

func code(c *int) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprint(*c)
}

// compareFiles compares kept files. Further files of got are differences if they are all expected.
func compareFiles(want, got []evidence.HashedFile, expectAll bool) (all []Difference) {
	hashes := map[string]string{}
	for _, f := range got {
		hashes[f.FilePath] = f.SHA256
	}
	for _, f := range want {
		if hashes[f.FilePath] != f.SHA256 {
			all = append(all, Difference{Signal: "artifact", Subject: f.FilePath, Want: f.SHA256, Got: hashes[f.FilePath]})
		}
		delete(hashes, f.FilePath)
	}
	for _, f := range got {
		if _, more := hashes[f.FilePath]; more && expectAll {
			all = append(all, Difference{Signal: "artifact", Subject: f.FilePath, Got: f.SHA256})
		}
	}
	return all
}

// compareTests returns the first difference between the results of two passes, nil for none. Its
// Subject is a command or a test case, and its Signal a word for people.
func compareTests(want, got evidence.Tests) *Difference {
	if a, b := len(want.Commands), len(got.Commands); a != b {
		return &Difference{Signal: "number of commands with a result", Subject: evidence.TestsFile, Want: fmt.Sprint(a), Got: fmt.Sprint(b)}
	}
	for i, a := range want.Commands {
		b := got.Commands[i]
		differs := func(signal, subject, want, got string) *Difference {
			return &Difference{Gate: a.Index, Signal: signal, Subject: subject, Want: want, Got: got}
		}
		x, y := signals(a), signals(b)
		for k, signal := range []string{"end", "output", "source of tests", "report"} {
			if x[k] != y[k] {
				return differs(signal, a.Command, x[k], y[k])
			}
		}
		if d := compareCases(a, b); d != nil {
			return d
		}
		if x, y := a.Counts.Value(), b.Counts.Value(); x != y {
			return differs("count of passed tests", a.Command, fmt.Sprintf("%d of %d", x.Passed, x.Total), fmt.Sprintf("%d of %d", y.Passed, y.Total))
		}
	}
	return nil
}

// compareCases returns the first test case of a command that has another outcome in another pass, nil
// for none. A case that is missing may be one of those that were dropped.
func compareCases(want, got evidence.CommandTests) *Difference {
	a, b, all := want.Cases, got.Cases, want.CasesDropped+got.CasesDropped == 0
	differs := func(id, was, is string) *Difference {
		return &Difference{Gate: want.Index, Signal: "outcome", Subject: id, Want: was, Got: is}
	}
	for len(a)+len(b) > 0 { // sorted by ID
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].ID < b[0].ID:
			if all {
				return differs(a[0].ID, string(a[0].Outcome), "missing")
			}
			a = a[1:]
		case len(a) == 0 || a[0].ID > b[0].ID:
			if all {
				return differs(b[0].ID, "missing", string(b[0].Outcome))
			}
			b = b[1:]
		case a[0].Outcome != b[0].Outcome:
			return differs(a[0].ID, string(a[0].Outcome), string(b[0].Outcome))
		default:
			a, b = a[1:], b[1:]
		}
	}
	return nil
}

// signals are the end of a command, the state of its output, the source of its tests, and the
// state of its report.
func signals(c evidence.CommandTests) [4]string {
	all := [4]string{c.Ending, "not complete", cmp.Or(string(c.Source), "nothing"), "usable"}
	if c.ExitCode != nil {
		all[0] = fmt.Sprintf("%s with code %d", c.Ending, *c.ExitCode)
	}
	if c.LogsComplete {
		all[1] = "complete"
	}
	if c.Problem != "" {
		all[3] = fmt.Sprintf("not usable (%.200s)", c.Problem)
	}
	return all
}

// Line is the first place where two texts differ.
type Line struct {
	// Line counts from 1. Want and Got are the beginnings of the lines there, empty where the
	// text has ended.
	Line int    `json:"line"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// maxShown bounds what is shown of a line, in bytes.
const maxShown = 200

// reordered reports whether logs differ, and each only in the order of lines of tests that ran in
// parallel. Letters in such a log do not say which test they are of, so the test cases must have the same
// outcomes.
func reordered(want, got evidence.Tests) bool {
	if len(want.Commands) != len(got.Commands) {
		return false
	}
	found := false
	for i, a := range want.Commands {
		b := got.Commands[i]
		if a.LogSHA256 == b.LogSHA256 {
			continue
		}
		if a.UnorderedSHA256 == "" || a.UnorderedSHA256 != b.UnorderedSHA256 || a.Index != b.Index || a.Source != b.Source || compareCases(a, b) != nil {
			return false
		}
		found = true
	}
	return found
}

// compareLogs compares the normalized logs of two gate directories; nil: they are equal. It
// streams, and memory does not grow with the length of lines.
func compareLogs(want, got *os.Root) (*Line, error) {
	a, _, err := fsx.OpenIn(want, evidence.RunLogFile)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b, _, err := fsx.OpenIn(got, evidence.RunLogFile)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return compareLines(a, b)
}

// compareLines compares piece by piece. A piece is a line, or as much of one as the buffer takes; as
// long as all is the same, both have the same pieces.
func compareLines(want, got io.Reader) (*Line, error) {
	const piece = 64 << 10
	a, b := bufio.NewReaderSize(want, piece), bufio.NewReaderSize(got, piece)
	for line := 1; ; {
		x, errX := a.ReadSlice('\n')
		y, errY := b.ReadSlice('\n')
		for _, err := range []error{errX, errY} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
				return nil, err
			}
		}
		if !bytes.Equal(x, y) {
			return &Line{line, shown(x), shown(y)}, nil
		}
		if len(x) == 0 {
			return nil, nil
		}
		if x[len(x)-1] == '\n' {
			line++
		}
	}
}

func shown(text []byte) string {
	text = bytes.TrimSuffix(text, []byte("\n"))
	if len(text) > maxShown {
		return strings.ToValidUTF8(string(text[:maxShown]), "�") + "…"
	}
	return strings.ToValidUTF8(string(text), "�")
}
