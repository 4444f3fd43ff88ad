package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// maxAnnotations is how many errors, and how many warnings, of one step GitHub shows.
const maxAnnotations = 10

// Annotations are workflow commands of GitHub Actions, one on each line, which show the failing
// tests and the causes of a verdict beside the code, and its warnings. directory is the workspace
// relative to the repository, empty if it is the repository. There are at most ten errors and ten
// warnings, because GitHub shows no more.
func Annotations(in Input, directory string) []byte {
	var all bytes.Buffer
	n := 0
	add := func(file, title, message string) {
		if n++; n > maxAnnotations {
			return
		}
		properties := ""
		if name, at, ok := strings.Cut(file, ":"); ok {
			properties = fmt.Sprintf("file=%s,line=%s,", escapeProperty.Replace(path.Join(directory, name)), at)
		} else if file != "" {
			properties = fmt.Sprintf("file=%s,", escapeProperty.Replace(path.Join(directory, file)))
		}
		fmt.Fprintf(&all, "::error %stitle=%s::%s\n", properties, escapeProperty.Replace(line(title)), escapeMessage.Replace(line(message)))
	}
	for _, w := range in.Verdict.Warnings[:min(maxAnnotations, len(in.Verdict.Warnings))] {
		fmt.Fprintf(&all, "::warning title=%s::%s\n", escapeProperty.Replace(gateTitle("Warning", w)), escapeMessage.Replace(line(w.Detail)))
	}
	if in.Verdict.Status == evidence.Pass {
		return all.Bytes()
	}
	for _, c := range in.Tests.Commands {
		for _, one := range Broken(c) {
			add(place(one), one.ID, cmp.Or(Reason(one), string(one.Outcome)))
		}
	}
	causes, _ := Causes(in.Verdict, in.Tests)
	for _, f := range causes {
		add("", gateTitle(string(f.Reason), f), f.Detail)
	}
	return all.Bytes()
}

// gateTitle is a title with the gate of a finding.
func gateTitle(title string, f evidence.Finding) string {
	if f.Gate > 0 {
		title += fmt.Sprintf(" in gate %d", f.Gate)
	}
	return title
}

// linePlace finds the places in the traceback of pytest, such as "tests/test_a.py:7: ".
var linePlace = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^([^\s:]+\.py):(\d{1,7}): `) })

// place is the file of a test case of pytest, with the last line of it in the traceback if there
// is one; empty for other tests, whose IDs name no file.
func place(c evidence.Case) string {
	file, _, _ := strings.Cut(c.ID, "::")
	if !strings.HasSuffix(file, ".py") || path.IsAbs(file) || path.Clean(file) != file || strings.HasPrefix(file, "../") || strings.ContainsAny(file, ": ") {
		return ""
	}
	at := ""
	for _, m := range linePlace().FindAllStringSubmatch(harmless(c.Message), -1) {
		if m[1] == file {
			at = ":" + m[2]
		}
	}
	return file + at
}

var (
	escapeMessage  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	escapeProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// NoCommands is a writer whose text has no workflow commands of GitHub Actions. Its runner reads
// them from the output of every step: lines that begin with "::", and "##[" anywhere. A space
// breaks them. Everything else passes unchanged, and at once. It is safe for concurrent use.
func NoCommands(out io.Writer) io.Writer { return &noCommands{out: out, begins: true} }

type noCommands struct {
	mu  sync.Mutex
	out io.Writer
	// begins says that the line has only spaces so far, and what the runner may take for them;
	// colon that they are followed by one colon. hashes counts the # before the next byte.
	begins, colon bool
	hashes        int
}

func (w *noCommands) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]byte, 0, len(p)+2)
	for _, b := range p {
		if b == ':' && w.colon || b == '[' && w.hashes > 1 {
			out = append(out, ' ')
		}
		w.colon = b == ':' && w.begins
		w.begins = b == '\n' || b == '\r' || w.begins && (b <= ' ' || b >= 0x7f)
		if w.hashes++; b != '#' {
			w.hashes = 0
		}
		out = append(out, b)
	}
	if _, err := w.out.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
