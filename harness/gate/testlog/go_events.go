package testlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/internal/logline"
)

// maxOpen bounds how many packages, builds and unfinished tests are remembered.
const maxOpen = 20_000

// goEvent is one line of go test -json; see go doc test2json.
type goEvent struct {
	Action      string `json:"Action"`
	Package     string `json:"Package"`
	Test        string `json:"Test"`
	Output      string `json:"Output"`
	ImportPath  string `json:"ImportPath"`
	FailedBuild string `json:"FailedBuild"`
}

// parseGoEvent reads a line that is an event.
func parseGoEvent(line []byte) (e goEvent, ok bool) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' {
		return e, false
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return goEvent{}, false
	}
	switch e.Action {
	case "start", "run", "pause", "cont", "pass", "bench", "fail", "output", "skip", "attr", "artifacts":
		return e, e.Package != ""
	case "build-output", "build-fail":
		return e, true
	}
	return e, false
}

// goEvents follows the events of go test -json.
type goEvents struct {
	keeper
	events  int
	problem string
	pkgs    map[string]*goPackage
	builds  map[string]*head
	// open counts the tests of all packages that began and did not end.
	open int
}

type goPackage struct {
	ended   bool
	failed  bool // one of its tests did
	running map[string]*head
	said    head
}

func newGoEvents() *goEvents {
	return &goEvents{pkgs: map[string]*goPackage{}, builds: map[string]*head{}}
}

// line takes a line of stdout. It is false if the line is text, such as that of a script
// which calls go test.
func (g *goEvents) line(line []byte, cut bool) bool {
	e, ok := parseGoEvent(line)
	switch {
	case ok:
		g.events++
		g.event(e)
	case g.events == 0 || len(line) == 0:
		return false
	case cut && line[0] == '{':
		g.tell(fmt.Sprintf("a line of the events has more than %d bytes", maxLine))
	case line[0] == '{':
		g.tell("a line of the events is broken or cut")
	default:
		return false
	}
	return true
}

// tell keeps the first problem.
func (g *goEvents) tell(problem string) {
	if g.problem == "" {
		g.problem = problem
	}
}

func (g *goEvents) event(e goEvent) {
	for _, s := range []*string{&e.Package, &e.Test, &e.ImportPath, &e.FailedBuild} {
		if len(*s) > maxName {
			*s = name(*s)
		}
	}
	switch e.Action {
	case "build-output":
		if b := remember(g, g.builds, e.ImportPath); b != nil {
			b.add(e.Output)
		}
		return
	case "build-fail":
		return // the packages that needed it fail
	}
	pkg := remember(g, g.pkgs, e.Package)
	if pkg == nil {
		return
	}
	switch {
	case e.Test == "":
		g.packageEvent(e, pkg)
	case e.Action == "run":
		g.began(e, pkg)
	case e.Action == "output":
		if said := pkg.running[e.Test]; said != nil && !framing(e.Output) {
			said.add(e.Output)
		}
	case e.Action == "pass", e.Action == "bench":
		g.ended(e, pkg, evidence.Passed)
	case e.Action == "skip":
		g.ended(e, pkg, evidence.Skipped)
	case e.Action == "fail":
		pkg.failed = true
		g.ended(e, pkg, evidence.Failed)
	}
}

func (g *goEvents) began(e goEvent, pkg *goPackage) {
	if pkg.running[e.Test] != nil {
		return
	}
	if g.open == maxOpen {
		g.tell(fmt.Sprintf("more than %d tests run at once", maxOpen))
		return
	}
	if pkg.running == nil {
		pkg.running = map[string]*head{}
	}
	g.open++
	pkg.running[e.Test] = &head{}
}

func (g *goEvents) packageEvent(e goEvent, pkg *goPackage) {
	switch e.Action {
	case "output":
		pkg.said.add(e.Output)
	case "pass", "fail", "skip":
		pkg.ended = true
		g.unfinished(e.Package, pkg)
		if e.Action != "fail" || pkg.failed {
			return
		}
		// The package failed and no test of it did: it was not built, or panicked, or
		// ended by itself.
		message := pkg.said.String()
		if b := g.builds[e.FailedBuild]; e.FailedBuild != "" && b != nil {
			message = b.String()
		}
		g.add(evidence.Case{ID: e.Package, Suite: e.Package, Outcome: evidence.Errored, Message: message})
	}
}

func (g *goEvents) ended(e goEvent, pkg *goPackage, o evidence.Outcome) {
	c := evidence.Case{ID: e.Package + "." + e.Test, Suite: e.Package, Name: e.Test, Outcome: o}
	if said := pkg.running[e.Test]; said != nil {
		c.Message = said.String()
		delete(pkg.running, e.Test)
		g.open--
	}
	g.add(c)
}

// unfinished are the tests of a package that began and have no end, as where a test ends
// the process.
func (g *goEvents) unfinished(name string, pkg *goPackage) {
	for _, test := range slices.Sorted(maps.Keys(pkg.running)) {
		pkg.failed = true
		message := strings.TrimSpace("began and did not end\n" + pkg.running[test].String())
		g.add(evidence.Case{ID: name + "." + test, Suite: name, Name: test, Outcome: evidence.Errored, Message: message})
	}
	g.open -= len(pkg.running)
	pkg.running = nil
}

// end is the end of the stream.
func (g *goEvents) end() {
	open := 0
	for _, name := range slices.Sorted(maps.Keys(g.pkgs)) {
		if p := g.pkgs[name]; !p.ended {
			open++
			g.unfinished(name, p)
		}
	}
	if open > 0 {
		g.tell(fmt.Sprintf("the events of %d packages have no end", open))
	}
}

// remember is the entry of a map, made if there is room; nil without room.
func remember[V any](g *goEvents, m map[string]*V, key string) *V {
	if v := m[key]; v != nil {
		return v
	}
	if len(m) == maxOpen {
		g.tell(fmt.Sprintf("the events have more than %d packages or builds", maxOpen))
		return nil
	}
	v := new(V)
	m[key] = v
	return v
}

// framing says that a line is of go test itself, not of a test.
func framing(output string) bool {
	line := strings.TrimLeft(output, " ")
	return strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ")
}

// CopyText copies the events of go test -json as the text that go test would have
// printed: the output of each event, and lines that are no events as they are.
func CopyText(dst io.Writer, stdout io.Reader) error {
	lines := logline.NewReader(stdout, maxLine)
	for inside := false; ; {
		piece, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		text := string(piece.Text)
		if e, ok := parseGoEvent(piece.Text); ok && !inside && !piece.More {
			text = e.Output
		} else if piece.LF {
			text += "\n"
		}
		inside = piece.More
		if _, err := io.WriteString(dst, text); err != nil {
			return err
		}
	}
}
