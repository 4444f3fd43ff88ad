package testreport

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/internal/logline"
)

// maxOpen bounds how many packages, builds and unfinished tests are remembered.
const maxOpen = 20_000

// goFraming matches lines of go test itself, not of a test.
var goFraming = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^ *(?:===|---) `) })

// goEvent is one line of go test -json; see go doc test2json.
type goEvent struct {
	Action      string `json:"Action"`
	Package     string `json:"Package"`
	Test        string `json:"Test"`
	Output      string `json:"Output"`
	ImportPath  string `json:"ImportPath"`
	FailedBuild string `json:"FailedBuild"`
	// Elapsed are seconds.
	Elapsed float64 `json:"Elapsed"`
}

// parseGoEvent reads a line if it is an event.
func parseGoEvent(line []byte) (e goEvent, ok bool) {
	if line = bytes.TrimSpace(line); !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &e) != nil {
		return e, false
	}
	switch e.Action {
	case "start", "run", "pause", "cont", "pass", "bench", "fail", "output", "skip", "attr", "artifacts":
		return e, e.Package != ""
	}
	return e, e.Action == "build-output" || e.Action == "build-fail"
}

// goEvents reads the events of go test -json.
type goEvents struct {
	keeper
	events int
	pkgs   map[string]*goPackage
	builds map[string]*head // the output of builds
	// running counts the tests of all packages that began and did not end.
	running int
}

type goPackage struct {
	ended   bool
	failed  bool             // a test of it failed
	running map[string]*head // the output of tests
	output  head
}

// line reads a line of stdout. It returns false if the line is text: a script can print
// some before it runs go test.
func (g *goEvents) line(line []byte, cut bool) bool {
	e, ok := parseGoEvent(line)
	switch {
	case ok:
		g.events++
		g.event(e)
	case g.events == 0 || !bytes.HasPrefix(line, []byte("{")):
		return false
	case cut:
		g.fail("a line of the events has more than %d bytes", maxLine)
	default:
		g.fail("a line of the events is broken or cut")
	}
	return true
}

func (g *goEvents) event(e goEvent) {
	for _, s := range []*string{&e.Package, &e.Test, &e.ImportPath, &e.FailedBuild} {
		if len(*s) > maxName {
			*s = name(*s)
		}
	}
	if strings.HasPrefix(e.Action, "build-") { // the packages that import a failed build fail
		if output := entry(g, g.builds, e.ImportPath); output != nil {
			output.add(e.Output)
		}
		return
	}
	pkg := entry(g, g.pkgs, e.Package)
	if pkg != nil && pkg.ended && (e.Action == "start" || e.Action == "run") {
		*pkg = goPackage{} // a script tests it again
	}
	switch {
	case pkg == nil:
	case e.Test == "":
		g.packageEvent(e, pkg)
	case e.Action == "run" && g.running == maxOpen:
		g.fail("more than %d tests run at once", maxOpen)
	case e.Action == "run" && pkg.running[e.Test] == nil:
		if pkg.running == nil {
			pkg.running = map[string]*head{}
		}
		g.running++
		pkg.running[e.Test] = &head{}
	case e.Action == "output":
		if output := pkg.running[e.Test]; output != nil && !goFraming().MatchString(e.Output) {
			output.add(e.Output)
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

func (g *goEvents) packageEvent(e goEvent, pkg *goPackage) {
	switch e.Action {
	case "output":
		pkg.output.add(e.Output)
	case "pass", "fail", "skip":
		pkg.ended = true
		g.unfinished(e.Package, pkg)
		if e.Action != "fail" || pkg.failed {
			return
		}
		// No test of the package failed: it was not built, panicked, or called os.Exit.
		message := pkg.output.String()
		if build := g.builds[e.FailedBuild]; build != nil {
			message = cmp.Or(build.String(), message)
		}
		g.add(evidence.Case{ID: e.Package, Suite: e.Package, Outcome: evidence.Errored, Message: message})
	}
}

func (g *goEvents) ended(e goEvent, pkg *goPackage, o evidence.Outcome) {
	c := evidence.Case{ID: e.Package + "." + e.Test, Suite: e.Package, Name: e.Test, Outcome: o}
	g.took(c.ID, e.Elapsed)
	if output := pkg.running[e.Test]; output != nil {
		c.Message = output.String()
		delete(pkg.running, e.Test)
		g.running--
	}
	g.add(c)
}

// unfinished adds the tests of a package that began and have no end. A test that ends the
// process leaves them.
func (g *goEvents) unfinished(pkgName string, pkg *goPackage) {
	for _, test := range slices.Sorted(maps.Keys(pkg.running)) {
		pkg.failed = true
		message := strings.TrimSpace("began and did not end\n" + pkg.running[test].String())
		g.add(evidence.Case{ID: pkgName + "." + test, Suite: pkgName, Name: test, Outcome: evidence.Errored, Message: message})
	}
	g.running -= len(pkg.running)
	pkg.running = nil
}

// end is the end of the stream.
func (g *goEvents) end() {
	open := 0
	for _, name := range slices.Sorted(maps.Keys(g.pkgs)) {
		if pkg := g.pkgs[name]; !pkg.ended {
			open++
			g.unfinished(name, pkg)
		}
	}
	if open > 0 {
		g.fail("the events of %d packages have no end", open)
	}
}

// entry is the entry of a map, created if there is room; nil without room.
func entry[V any](g *goEvents, m map[string]*V, key string) *V {
	if v := m[key]; v != nil {
		return v
	}
	if len(m) == maxOpen {
		g.fail("the events have more than %d packages or builds", maxOpen)
		return nil
	}
	v := new(V)
	m[key] = v
	return v
}

// CopyText copies the events of go test -json as the text that go test would have
// printed. Lines that are not events are copied as they are.
func CopyText(dst io.Writer, stdout io.Reader) error {
	inside := false
	return logline.Pieces(stdout, maxLine, func(piece []byte, more bool) error {
		text := string(piece)
		if e, ok := parseGoEvent(piece); ok && !inside && !more {
			text = e.Output
		}
		inside = more
		_, err := io.WriteString(dst, text)
		return err
	})
}
