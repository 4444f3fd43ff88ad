package spec

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/policy"
	sandboxspec "github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// maxList bounds lists of paths and patterns, maxText one of their entries in bytes.
	maxList = 500
	maxText = 1024
	// maxRules bounds the rules of normalization: each is applied to every line.
	maxRules = 50
	// maxTools bounds the directories of a toolchain.
	maxTools = 20
	maxExit  = 255
	maxSize  = 1 << 50
)

var (
	pythonVersion = regexp.MustCompile(`^[0-9]{1,2}\.[0-9]{1,3}(\.[0-9]{1,3})?$`)
	kinds         = []evidence.GateKind{evidence.KindTests, evidence.KindCheck}
	reports       = []evidence.ReportFormat{
		evidence.ReportAuto, evidence.ReportPytest, evidence.ReportGoTest, evidence.ReportJUnit,
		evidence.ReportTAP, evidence.ReportNone,
	}
)

// document checks values that the normal form does not show any more.
func (c *checker) document(d *document) {
	if d.Limits.CPUs != 0 || c.lines["limits.cpus"] != 0 {
		if _, err := milliCPUs(d.Limits.CPUs); err != nil {
			c.refuse("limits.cpus", "", err.Error())
		}
	}
	for _, limit := range []struct {
		field string
		value int64
	}{
		{"limits.memory", int64(d.Limits.Memory)}, {"limits.disk", int64(d.Limits.Disk)}, {"limits.log", int64(d.Limits.Log)}, {"limits.pids", d.Limits.PIDs},
	} {
		if limit.value == 0 && c.lines[limit.field] != 0 {
			c.refuse(limit.field, "", "must be at least 1")
		}
	}
	byDefault := newDocument()
	for _, text := range []struct {
		field  string
		value  *string
		unless string
	}{
		{"name", &d.Name, byDefault.Name}, {"io_boundary", &d.IOBoundary, byDefault.IOBoundary}, {"image", &d.Image, ""}, {"python", &d.Python, ""},
	} {
		if *text.value == "" && c.lines[text.field] != 0 {
			c.refuse(text.field, "", "must not be empty: give a value or leave the key out")
			*text.value = text.unless // one problem is enough
		}
	}
	hosts := d.Network != nil && d.Network.Level != string(policy.Offline)
	switch {
	case d.Offline == nil:
	case *d.Offline && hosts:
		c.refuse("offline", "", "is true, and there is a network: leave one of them out")
	case !*d.Offline && !hosts:
		c.refuse("offline", "", "is false, and there is no network: say what may be reached, such as network: {level: registry}")
	}
}

// spec checks a wish in its normal form.
func (c *checker) spec(s Spec) {
	if s.Schema != SchemaV1 {
		c.refuse("schema", s.Schema, fmt.Sprintf("must be %q", SchemaV1))
	}
	c.policy("name", policy.CheckName("name", s.Name))
	c.commands(s.GateCommands)
	if c.text("io_boundary", s.IOBoundary) && !isLocal(s.IOBoundary) {
		c.refuse("io_boundary", s.IOBoundary, "must be a folder at or below that of the wish, as a relative path")
	}
	c.network(s)
	c.text("image", s.Image)
	if s.Python != "" && !pythonVersion.MatchString(s.Python) {
		c.refuse("python", s.Python, "must be a version such as 3.11 or 3.11.2")
	}
	c.env("env", s.Env)
	c.limits(s.Limits)
	c.patterns(s.ArtifactPaths)
	c.paths("protected_paths", s.ProtectedPaths)
	c.paths("read_only_paths", s.ReadOnlyPaths)
	c.paths("exclude", s.Exclude)
	if s.Strict && s.AllowUnobserved {
		c.refuse("allow_unobserved", "", "is true, and the wish is strict, which demands that everything is observed: leave one of them out")
	}
	c.toolchain(s.Toolchain)
	c.rules(s.Normalize)
	c.count("allow_suspects", len(s.AllowSuspects), maxRules)
	for i, pattern := range s.AllowSuspects {
		c.pattern(fmt.Sprintf("allow_suspects[%d]", i), pattern)
	}
}

// policy reports errors of package policy at a field, each on its own.
func (c *checker) policy(field string, err error) {
	var broken *policy.FieldError
	switch {
	case err == nil:
	case errors.As(err, &broken):
		c.refuse(field, "", strings.TrimPrefix(broken.Value+" "+broken.Rule, " "))
	default:
		c.refuse(field, "", err.Error())
	}
}

func (c *checker) count(field string, n, most int) {
	if n > most {
		c.refuse(field, "", fmt.Sprintf("has %d entries; at most %d", n, most))
	}
}

// text reports whether a text is short, UTF-8 and without control characters.
func (c *checker) text(field, text string) bool {
	switch {
	case len(text) > maxText:
		c.refuse(field, text, fmt.Sprintf("has %d bytes; at most %d", len(text), maxText))
	case !utf8.ValidString(text):
		c.refuse(field, text, "is not UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		c.refuse(field, text, "must not have control characters")
	default:
		return true
	}
	return false
}

func (c *checker) commands(all []evidence.Command) {
	c.count("gate_commands", len(all), MaxCommands)
	for i, g := range all {
		at := fmt.Sprintf("gate_commands[%d]", i)
		if _, err := Split(g.Cmd); err != nil {
			field := at + ".cmd"
			if c.lines[field] == 0 {
				field = at // written as a line, or left out
			}
			c.refuse(field, g.Cmd, err.Error())
		}
		if g.ExpectExit < 0 || g.ExpectExit > maxExit {
			c.refuse(at+".expect_exit", "", fmt.Sprintf("is %d; must be 0 to %d", g.ExpectExit, maxExit))
		}
		oneOf(c, at+".kind", g.Kind, kinds)
		if oneOf(c, at+".report", g.Report, reports) {
			c.report(at, g)
		}
		if g.TimeoutMS < 0 || g.TimeoutMS > maxTime.Milliseconds() {
			c.refuse(at+".timeout", "", fmt.Sprintf("must be between 1ms and %v", maxTime))
		}
		c.env(at+".env", g.Env)
	}
}

func (c *checker) report(at string, g evidence.Command) {
	field := at + ".report_path"
	switch {
	case g.Report == evidence.ReportJUnit && g.ReportPath == "":
		c.refuse(at, "", "has the report junit, and so must have report_path")
	case g.Report != evidence.ReportJUnit && g.ReportPath != "":
		c.refuse(field, g.ReportPath, "is for the report junit only, not "+string(g.Report))
	case g.ReportPath == "" || !c.text(field, g.ReportPath):
	case strings.HasPrefix(g.ReportPath, sandboxspec.FinalDir+"/") && path.Clean(g.ReportPath) == g.ReportPath:
	case !isLocal(g.ReportPath) || g.ReportPath == ".":
		c.refuse(field, g.ReportPath, "must be a file below the boundary, or below "+sandboxspec.FinalDir)
	}
	if g.Kind == evidence.KindTests && g.Report == evidence.ReportNone {
		c.refuse(at+".report", string(g.Report), "shows no test, and the kind is tests: make the kind check, or name the report of its tests")
	}
}

func oneOf[T ~string](c *checker, field string, value T, all []T) bool {
	if slices.Contains(all, value) {
		return true
	}
	words := make([]string, len(all))
	for i, word := range all {
		words[i] = string(word)
	}
	c.refuse(field, string(value), "must be one of "+strings.Join(words, ", "))
	return false
}

func (c *checker) paths(field string, paths []string) {
	c.count(field, len(paths), maxList)
	seen := map[string]bool{}
	for i, name := range paths {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case !c.text(at, name):
		case !isLocal(name) || name == ".":
			c.refuse(at, name, "must be a relative path below the boundary")
		case seen[name]:
			c.refuse(at, name, "is given twice")
		}
		seen[name] = true
	}
}

func (c *checker) patterns(patterns []string) {
	c.count("artifact_paths", len(patterns), maxList)
	for i, pattern := range patterns {
		at := fmt.Sprintf("artifact_paths[%d]", i)
		if !c.text(at, pattern) {
			continue
		}
		if !isLocal(pattern) || pattern == "." {
			c.refuse(at, pattern, "must be a pattern of paths below the boundary, such as dist/**/*.whl")
			continue
		}
		for segment := range strings.SplitSeq(pattern, "/") {
			if _, err := path.Match(segment, ""); err != nil || strings.Contains(segment, "**") && segment != "**" {
				c.refuse(at, pattern, "is no pattern: *, ? and [a-z] stand within one name, ** for whole folders")
				break
			}
		}
	}
}

func (c *checker) network(w Spec) {
	e := policy.Egress{Level: policy.NetworkLevel(w.Network.Level), Allow: w.Network.Allow, Deny: w.Network.Deny}
	if !slices.Contains(policy.NetworkLevels(), e.Level) {
		c.refuse("network.level", w.Network.Level, "must be offline, registry, api or open")
		return
	}
	if w.Offline != e.Offline() {
		c.refuse("offline", "", fmt.Sprintf("is %t, and network.level is %s", w.Offline, w.Network.Level))
	}
	if e.Offline() && len(e.Allow)+len(e.Deny) > 0 {
		c.refuse("network", "", "lists hosts, and its level is offline")
	}
	_, err := e.Rules(nil, nil)
	for _, err := range each(err) {
		field := "network"
		var broken *policy.FieldError
		if errors.As(err, &broken) {
			field = map[string]string{"allow-host": "network.allow", "deny-host": "network.deny"}[broken.Field]
		}
		c.policy(cmp.Or(field, "network"), err)
	}
}

// each takes joined errors apart.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func (c *checker) env(field string, vars map[string]string) {
	for _, err := range policy.CheckEnv(vars) {
		c.policy(field, err)
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
		{"cpus", l.MilliCPUs, 10, maxCPUs * 1000, "0.01 and 4096"},
		{"pids", l.PIDs, 1, 4 << 20, "1 and 4194304"},
		{"disk", l.DiskBytes, int64(4 * policy.KiB), maxSize, "4KiB and 1PiB"},
		{"log", l.LogBytes, int64(policy.KiB), int64(policy.GiB), "1KiB and 1GiB"},
	} {
		if limit.value != 0 && (limit.value < limit.low || limit.value > limit.high) {
			c.refuse("limits."+limit.field, "", "must be between "+limit.text)
		}
	}
}

func (c *checker) toolchain(tools []Tool) {
	c.count("toolchain", len(tools), maxTools)
	for i, t := range tools {
		at := fmt.Sprintf("toolchain[%d]", i)
		if c.text(at+".source", t.Source) &&
			(!filepath.IsAbs(t.Source) || filepath.Clean(t.Source) != t.Source || filepath.Dir(t.Source) == t.Source) {
			c.refuse(at+".source", t.Source, "must be a clean absolute path of a folder of this machine")
		}
		if c.text(at+".target", t.Target) && (path.Clean(t.Target) != t.Target || !strings.HasPrefix(t.Target, sandboxspec.HostDir+"/")) {
			c.refuse(at+".target", t.Target, "must be a clean path below "+sandboxspec.HostDir)
		}
		for _, other := range tools[:i] {
			if other.Target == t.Target || strings.HasPrefix(t.Target, other.Target+"/") || strings.HasPrefix(other.Target, t.Target+"/") {
				c.refuse(at+".target", t.Target, "is, holds or lies in the target "+strict.Quoted(other.Target))
			}
		}
	}
}

func (c *checker) rules(rules []evidence.Rule) {
	c.count("normalize", len(rules), maxRules)
	seen := map[string]bool{}
	for i, r := range rules {
		at := fmt.Sprintf("normalize[%d]", i)
		c.policy(at+".name", policy.CheckName("name", r.Name))
		if seen[r.Name] {
			c.refuse(at+".name", r.Name, "is given twice")
		}
		seen[r.Name] = true
		c.text(at+".replace", r.Replace)
		c.pattern(at+".pattern", r.Pattern)
	}
}

// pattern checks a regular expression. One that matches nothing at all matches
// everywhere.
func (c *checker) pattern(field, pattern string) {
	if len(pattern) > maxText {
		c.refuse(field, pattern, fmt.Sprintf("has %d bytes; at most %d", len(pattern), maxText))
		return
	}
	r, err := regexp.Compile(pattern)
	switch {
	case err != nil:
		c.refuse(field, pattern, "must be a regular expression: "+err.Error())
	case r.MatchString(""):
		c.refuse(field, pattern, "matches the empty text, and so everywhere")
	}
}
