package spec

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	sandboxspec "github.com/evalbox/evalbox/sandbox/spec"
)

const (
	maxList  = 500  // of paths and patterns
	maxText  = 1024 // bytes of one path or pattern
	maxRules = 50   // of normalization: each is applied to every line
	maxTools = 20   // directories of a toolchain
	maxHosts = 1000 // of a list, as in package policy
	maxExit  = 255
	maxSize  = 1 << 50
)

var (
	pythonVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,2}\.[0-9]{1,3}(\.[0-9]{1,3})?$`) })
	kinds         = []evidence.GateKind{evidence.KindTests, evidence.KindCheck}
	reports       = []evidence.ReportFormat{
		evidence.ReportAuto, evidence.ReportPytest, evidence.ReportGoTest, evidence.ReportJUnit,
		evidence.ReportTAP, evidence.ReportNone,
	}
)

// A checker collects the problems of a wish.
type checker struct {
	source string
	// lines are the lines of the document by path; prefix is the path of the wish in it, with
	// a dot at its end.
	lines  map[string]int
	prefix string
	// form are the problems of the decoder, which are not reported twice.
	form, found []strict.Problem
	more        int
}

func (c *checker) err() error {
	if c.more > 0 {
		c.found = append(c.found, strict.Problem{Rule: fmt.Sprintf("has %d problems more", c.more)})
	}
	return strict.Join(c.source, slices.Concat(c.form, c.found))
}

// refuse adds a problem of a field; value is shown shortened, unless it is empty.
func (c *checker) refuse(field, value, rule string) {
	if slices.ContainsFunc(c.form, func(p strict.Problem) bool {
		return p.Path == field || strings.HasPrefix(field, p.Path+".") || strings.HasPrefix(field, p.Path+"[")
	}) {
		return
	}
	if len(c.found) == strict.MaxProblems {
		c.more++
		return
	}
	if value != "" {
		value = strict.Quoted(value)
	}
	line := 0
	for at := field; line == 0 && at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		line = c.lines[c.prefix+at]
	}
	c.found = append(c.found, strict.Problem{Line: line, Path: field, Value: value, Rule: rule})
}

// when refuses a field under a condition.
func (c *checker) when(wrong bool, field, value, rule string) {
	if wrong {
		c.refuse(field, value, rule)
	}
}

// document checks values that the normal form does not show any more.
func (c *checker) document(d document) {
	for _, text := range []struct{ field, value string }{{"image", d.Image}, {"python", d.Python}} {
		c.when(text.value == "" && c.lines[text.field] != 0, text.field, "", "must not be empty: give a value or leave the key out")
	}
	if d.Offline != nil {
		hosts := d.Network != nil && d.Network.Level != string(policy.Offline)
		c.when(*d.Offline && hosts, "offline", "", "is true, and there is a network: leave one of them out")
		c.when(!*d.Offline && !hosts, "offline", "", "is false, and there is no network: say what may be reached, such as network: {level: registry}")
	}
}

// spec checks a wish in its normal form.
func (c *checker) spec(s Spec) {
	c.when(s.Schema != SchemaV1, "schema", s.Schema, fmt.Sprintf("must be %q", SchemaV1))
	c.policy("name", policy.CheckName("name", s.Name))
	c.count("gate_commands", len(s.GateCommands), maxCommands)
	for i, g := range s.GateCommands {
		c.command(fmt.Sprintf("gate_commands[%d]", i), g)
	}
	c.path("io_boundary", s.IOBoundary, isLocal, "must be a directory at or below that of the wish, as a relative path")
	c.network(s)
	c.text("image", s.Image)
	c.when(s.Python != "" && !pythonVersion().MatchString(s.Python), "python", s.Python, "must be a version such as 3.11 or 3.11.2")
	c.policy("env", policy.CheckEnv(s.Env)...)
	c.limits(s.Limits)
	c.count("artifact_paths", len(s.ArtifactPaths), maxList)
	for i, pattern := range s.ArtifactPaths {
		at := fmt.Sprintf("artifact_paths[%d]", i)
		c.path(at, pattern, isBelow, "must be a pattern of paths below the boundary, such as dist/**/*.whl")
		c.when(!isPattern(pattern), at, pattern, "is not a pattern: *, ? and [a-z] stand within one name, ** for whole directories")
	}
	c.paths("protected_paths", s.ProtectedPaths)
	c.paths("read_only_paths", s.ReadOnlyPaths)
	c.paths("exclude", s.Exclude)
	c.when(s.Strict && s.AllowUnobserved, "allow_unobserved", "", "is true, and the wish is strict, which demands that everything is observed: leave one of them out")
	c.toolchain(s.Toolchain)
	c.count("normalize", len(s.Normalize), maxRules)
	for i, r := range s.Normalize {
		at := fmt.Sprintf("normalize[%d]", i)
		c.policy(at+".name", policy.CheckName("name", r.Name))
		c.when(slices.ContainsFunc(s.Normalize[:i], func(other evidence.Rule) bool { return other.Name == r.Name }), at+".name", r.Name, "is given twice")
		c.text(at+".replace", r.Replace)
		c.pattern(at+".pattern", r.Pattern)
	}
	c.count("allow_suspects", len(s.AllowSuspects), maxRules)
	for i, pattern := range s.AllowSuspects {
		c.pattern(fmt.Sprintf("allow_suspects[%d]", i), pattern)
	}
}

// policy reports errors of package policy at a field, each on its own.
func (c *checker) policy(field string, errs ...error) {
	for _, err := range errs {
		var broken *policy.FieldError
		switch {
		case err == nil:
		case errors.As(err, &broken):
			c.refuse(field, "", strings.TrimPrefix(broken.Value+" "+broken.Rule, " "))
		default:
			c.refuse(field, "", err.Error())
		}
	}
}

func (c *checker) count(field string, n, most int) {
	c.when(n > most, field, "", fmt.Sprintf("has %d entries; at most %d", n, most))
}

// text reports whether a text is short, UTF-8 and without control characters.
func (c *checker) text(field, value string) bool {
	switch {
	case len(value) > maxText:
		c.refuse(field, value, fmt.Sprintf("has %d bytes; at most %d", len(value), maxText))
	case !utf8.ValidString(value):
		c.refuse(field, value, "is not UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		c.refuse(field, value, "must not have control characters")
	default:
		return true
	}
	return false
}

// path checks a text that must also be ok.
func (c *checker) path(field, name string, ok func(string) bool, rule string) {
	if c.text(field, name) {
		c.when(!ok(name), field, name, rule)
	}
}

// paths checks paths below the boundary.
func (c *checker) paths(field string, paths []string) {
	c.count(field, len(paths), maxList)
	seen := map[string]bool{}
	for i, name := range paths {
		at := fmt.Sprintf("%s[%d]", field, i)
		c.path(at, name, isBelow, "must be a relative path below the boundary")
		c.when(seen[name], at, name, "is given twice")
		seen[name] = true
	}
}

func (c *checker) command(at string, g evidence.Command) {
	if _, err := split(g.Cmd); err != nil {
		field := at + ".cmd"
		if c.lines[field] == 0 {
			field = at // written as a line, or left out
		}
		c.refuse(field, g.Cmd, err.Error())
	}
	c.when(g.ExpectExit < 0 || g.ExpectExit > maxExit, at+".expect_exit", "", fmt.Sprintf("is %d; must be 0 to %d", g.ExpectExit, maxExit))
	c.when(!slices.Contains(kinds, g.Kind), at+".kind", string(g.Kind), "must be one of "+text.List(kinds))
	c.when(g.TimeoutMS < 0 || g.TimeoutMS > maxTime.Milliseconds(), at+".timeout", "", fmt.Sprintf("must be between 1ms and %v", maxTime))
	c.policy(at+".env", policy.CheckEnv(g.Env)...)
	report, file := at+".report", at+".report_path"
	switch junit := g.Report == evidence.ReportJUnit; {
	case !slices.Contains(reports, g.Report):
		c.refuse(report, string(g.Report), "must be one of "+text.List(reports))
	case junit && g.ReportPath == "":
		c.refuse(at, "", "has the report junit, and so must have report_path")
	case !junit && g.ReportPath != "":
		c.refuse(file, g.ReportPath, "is for the report junit only, not "+string(g.Report))
	case junit:
		c.path(file, g.ReportPath, func(name string) bool { return isBelow(name) || isCleanBelow(name, sandboxspec.FinalDir) },
			"must be a file below the boundary, or below "+sandboxspec.FinalDir)
	case g.Kind == evidence.KindTests && g.Report == evidence.ReportNone:
		c.refuse(report, string(g.Report), "shows no test, and the kind is tests: make the kind check, or name the report of its tests")
	}
}

// isPattern reports whether [Match] can use a pattern.
func isPattern(pattern string) bool {
	for segment := range strings.SplitSeq(pattern, "/") {
		if _, err := path.Match(segment, ""); err != nil || strings.Contains(segment, "**") && segment != "**" {
			return false
		}
	}
	return true
}

func (c *checker) network(w Spec) {
	e := policy.Egress{Level: policy.NetworkLevel(w.Network.Level), Allow: w.Network.Allow, Deny: w.Network.Deny}
	if !slices.Contains(policy.NetworkLevels(), e.Level) {
		c.refuse("network.level", w.Network.Level, "must be offline, registry, api or open")
		return
	}
	c.when(w.Offline != e.Offline(), "offline", "", fmt.Sprintf("is %t, and network.level is %s", w.Offline, w.Network.Level))
	c.when(e.Offline() && len(e.Allow)+len(e.Deny) > 0, "network", "", "lists hosts, and its level is offline")
	for _, list := range []struct {
		field string
		hosts []string
	}{{"network.allow", e.Allow}, {"network.deny", e.Deny}} {
		c.count(list.field, len(list.hosts), maxHosts)
		for _, host := range list.hosts {
			_, err := policy.ParseHostPattern(host)
			c.policy(list.field, err)
		}
	}
}

func (c *checker) limits(l evidence.Caps) {
	for _, limit := range []struct {
		field            string
		value, low, high int64
		text             string
	}{
		{"timeout", l.TimeoutMS, 1, maxTime.Milliseconds(), fmt.Sprintf("1ms and %v", maxTime)},
		{"memory", l.MemoryBytes, int64(6 * policy.MiB), maxSize, "6MiB and 1PiB"},
		{"cpus", l.MilliCPUs, 10, maxCPUs * 1000, "0.01 and 4096, with at most three digits after the point"},
		{"pids", l.PIDs, 1, 4 << 20, "1 and 4194304"},
		{"disk", l.DiskBytes, int64(4 * policy.KiB), maxSize, "4KiB and 1PiB"},
		{"log", l.LogBytes, int64(policy.KiB), int64(policy.GiB), "1KiB and 1GiB"},
	} {
		// In a document 0 is a mistake; in the normal form it is the limit of the policy.
		given := limit.value != 0 || c.lines["limits."+limit.field] != 0
		c.when(given && (limit.value < limit.low || limit.value > limit.high), "limits."+limit.field, "", "must be between "+limit.text)
	}
}

func (c *checker) toolchain(tools []Tool) {
	c.count("toolchain", len(tools), maxTools)
	for i, t := range tools {
		at := fmt.Sprintf("toolchain[%d]", i)
		c.path(at+".source", t.Source, func(dir string) bool {
			return filepath.IsAbs(dir) && filepath.Clean(dir) == dir && filepath.Dir(dir) != dir
		}, "must be a clean absolute path of a directory of this machine")
		c.path(at+".target", t.Target, func(dir string) bool { return isCleanBelow(dir, sandboxspec.HostDir) }, "must be a clean path below "+sandboxspec.HostDir)
		for _, other := range tools[:i] {
			c.when(fsx.Within(t.Target, other.Target) || fsx.Within(other.Target, t.Target),
				at+".target", t.Target, "is, holds or lies in the target "+strict.Quoted(other.Target))
		}
	}
}

// pattern checks a regular expression. One that matches the empty text matches everywhere.
func (c *checker) pattern(field, pattern string) {
	r, err := regexp.Compile(pattern)
	switch {
	case len(pattern) > maxText:
		c.refuse(field, pattern, fmt.Sprintf("has %d bytes; at most %d", len(pattern), maxText))
	case err != nil:
		c.refuse(field, pattern, "must be a regular expression: "+err.Error())
	case r.MatchString(""):
		c.refuse(field, pattern, "matches the empty text, and so everywhere")
	}
}

// isLocal reports whether a path is clean, relative, and does not lead out.
func isLocal(name string) bool {
	return name != "" && path.Clean(name) == name && !path.IsAbs(name) && filepath.IsLocal(filepath.FromSlash(name))
}

func isBelow(name string) bool { return isLocal(name) && name != "." }

func isCleanBelow(name, dir string) bool {
	return path.Clean(name) == name && strings.HasPrefix(name, dir+"/")
}
