//go:build linux

package hostile

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/probe"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// corpus is an expectations.json. Only facts that a machine can check are read from it.
type corpus struct {
	Harness struct {
		RunTwice []string `json:"run_twice"`
	} `json:"harness"`
	Scripts map[string]struct {
		TimeLimit float64        `json:"suggested_time_limit_s"`
		Expect    map[string]any `json:"expect"`
		// UnderGVisor explains a difference, which is then not judged.
		UnderGVisor string `json:"under_gvisor"`
	} `json:"scripts"`
}

// pins are the choices that a corpus leaves to the sandbox.
var pins = map[string]any{
	// A traceback in stderr is an error, whatever the exit code is (EX-013).
	"is_error": true,
	// A score is reported beside an error as well.
	"score": 0.5,
	// The code of a run that its time limit ended is that of the signal.
	"exit_code": 143.0,
}

// pinned are choices for one script where they differ from the above.
var pinned = map[string]map[string]any{
	"s04_score_nan_inf.py": {"score": nil}, // the last score line decides, and it is not finite
}

// deviations are expectations that a requirement of this project overrules, and why.
var deviations = map[string]string{
	"e05_chained.py error_traceback": "the last traceback counts (EX-012), which is the end of a chain; stderr has all of it",
}

// TestEngineCorpus runs the programs of a directory, each with the result that its expectations.json
// states. It runs only if a directory is given: `make hostile CORPUS=DIR`.
func TestEngineCorpus(t *testing.T) {
	dir := os.Getenv("EVALBOX_CORPUS")
	if dir == "" {
		t.Skip("no directory of programs is given: make hostile CORPUS=DIR")
	}
	text, err := os.ReadFile(filepath.Join(dir, "expectations.json"))
	require.NoError(t, err)
	var c corpus
	require.NoError(t, json.Unmarshal(text, &c))
	require.NotEmpty(t, c.Scripts)
	t.Setenv("FAKE_API_KEY", secret)
	t.Setenv("FAKE_TOKEN", secret)
	p := place(t)
	t.Run("all", func(t *testing.T) {
		for name, script := range c.Scripts {
			if spec.OwnKernel(p.Machine.Runtime) && script.UnderGVisor != "" {
				continue
			}
			t.Run(name, func(t *testing.T) {
				if !pooled() { // whose pool has one container
					t.Parallel()
				}
				program, err := os.ReadFile(filepath.Join(dir, name))
				require.NoError(t, err)
				times := 1
				if slices.Contains(c.Harness.RunTwice, name) {
					times = 2
				}
				for range times {
					v := probe.Verdict{Group: "corpus", Name: strings.TrimSuffix(name, ".py")}
					v.Differs = runOfCorpus(t, p, name, string(program), script.TimeLimit, script.Expect)
					report(t, v)
				}
			})
		}
	})
	requireNoProcess(t)
}

// runOfCorpus runs one program and returns where its result differs.
func runOfCorpus(t *testing.T, p probe.Place, name, program string, seconds float64, expect map[string]any) []string {
	t.Helper()
	endless := expect["timed_out"] == true
	if !endless {
		seconds *= 4 // the machine may be busy
	}
	r := probe.Run{Group: "corpus", Name: name, Python: program, Limits: policy.Limits{
		Timeout: time.Duration(seconds * float64(time.Second)), Grace: 2 * time.Second, Memory: 512 * policy.MiB, PIDs: p.Machine.PIDs(256), CPUs: 1,
		Tmp: 128 * policy.MiB, Shm: 256 * policy.MiB, Disk: 512 * policy.MiB,
	}, Input: map[string]string{".attack-ok": ""}}
	if spec.OwnKernel(p.Machine.Runtime) {
		r.Limits.PIDs = 4096
	}
	res, wrong, err := p.Look(t.Context(), r)
	if err != nil {
		return []string{err.Error()}
	}
	limit := r.Limits.Timeout.Seconds()
	return append(wrong, judgeExpectation(name, expect, res, limit)...)
}

// judgeExpectation compares a result with one expectation, or with the best of several.
func judgeExpectation(name string, expect map[string]any, res *result.Result, limit float64) []string {
	if all, ok := expect["any_of"].([]any); ok {
		var best []string
		for i, one := range all {
			differs := judgeExpectation(name, one.(map[string]any), res, limit)
			if i == 0 || len(differs) < len(best) {
				best = differs
			}
		}
		return best
	}
	j := &corpusJudge{name: name, res: res, limit: limit}
	for key, want := range expect {
		if deviations[name+" "+key] == "" {
			j.key(key, want)
		}
	}
	slices.Sort(j.differs)
	return j.differs
}

type corpusJudge struct {
	name    string
	res     *result.Result
	limit   float64
	differs []string
}

func (j *corpusJudge) wrong(format string, args ...any) {
	j.differs = append(j.differs, fmt.Sprintf(format, args...))
}

func (j *corpusJudge) key(key string, want any) {
	res := j.res
	switch key {
	case "exit_code":
		code := res.ExitCode
		if res.TimedOut {
			code = 128 + res.Signal
		}
		j.value(key, want, float64(code))
	case "timed_out":
		j.value(key, want, res.TimedOut)
	case "oom_killed":
		j.value(key, want, res.OOMKilled)
	case "is_error":
		j.value(key, want, res.IsError)
	case "score":
		if res.Score == nil {
			j.value(key, want, nil)
		} else {
			j.value(key, want, *res.Score)
		}
	case "probes", "probes_optional":
		for glob, values := range want.(map[string]any) {
			j.probe(glob, values, key == "probes_optional")
		}
	case "probes_absent":
		for _, glob := range texts(want) {
			for name, value := range probesOf(res.Stdout) {
				if matches(glob, name) {
					j.wrong("there is the probe %s=%s", name, value)
				}
			}
		}
	case "duration":
		bounds := texts(want)
		least, most := j.seconds(bounds[0]), j.seconds(bounds[1])
		if res.DurationSeconds < least-0.5 || res.DurationSeconds > most+20 { // the machine may be busy
			j.wrong("it took %.1f s, not %s to %s", res.DurationSeconds, bounds[0], bounds[1])
		}
	case "truncated":
		for _, stream := range texts(want) {
			if cut := map[string]bool{"stdout": res.StdoutTruncated, "stderr": res.StderrTruncated}[stream]; !cut {
				j.wrong("%s is not marked as cut", stream)
			}
		}
	case "stdout":
		j.statements(key, want, res.Stdout, res.StdoutBytes)
	case "stderr":
		j.statements(key, want, res.Stderr, res.StderrBytes)
	case "error_traceback":
		j.traceback(want)
	case "files":
		for path, statement := range want.(map[string]any) {
			j.file(strings.TrimPrefix(path, "final/"), statement.(string))
		}
	case "files_absent":
		for _, glob := range texts(want) {
			for _, o := range res.Outputs {
				if matches(strings.TrimPrefix(glob, "final/"), o.Path) {
					j.wrong("there is the output %q", o.Path)
				}
			}
		}
	case "host": // every run is followed by all checks of the host
	default:
		j.wrong("the expectation %q is not known", key)
	}
}

// value compares a value with a literal, with one of several, or with the choice that is pinned.
func (j *corpusJudge) value(key string, want, got any) {
	if object, ok := want.(map[string]any); ok {
		if all, ok := object["any_of"].([]any); ok {
			if !slices.Contains(all, got) {
				j.wrong("%s is %v, none of %v", key, got, all)
			}
			return
		}
		choice, ok := pinned[j.name][key]
		if !ok {
			choice = pins[key]
		}
		// A choice that a score may be reported does not demand one.
		if got != choice && !(key == "score" && got == nil) && !(key == "exit_code" && got == 137.0) {
			j.wrong("%s is %v, and the choice is %v", key, got, choice)
		}
		return
	}
	if want != got {
		j.wrong("%s is %v, not %v", key, got, want)
	}
}

func (j *corpusJudge) probe(glob string, values any, optional bool) {
	found := false
	for name, value := range probesOf(j.res.Stdout) {
		if !matches(glob, name) {
			continue
		}
		found = true
		if !slices.ContainsFunc(texts(values), func(want string) bool {
			switch {
			case strings.HasPrefix(want, "<nonzero>"):
				return value != "0"
			case strings.Contains(want, "or none"):
				return value == "none" || value == "0"
			}
			return matches(want, value)
		}) {
			j.wrong("the probe %s is %q, not %q", name, value, texts(values))
		}
	}
	if !found && !optional {
		j.wrong("there is no probe %s", glob)
	}
}

var (
	countPattern  = regexp.MustCompile(`^([\d,]+) '(\w+)' lines in order`)
	keepsPattern  = regexp.MustCompile(`keeps '([^']+)'`)
	stringPattern = regexp.MustCompile(`^(starts with|contains|ends with) (.*)$`)
	boundPattern  = regexp.MustCompile(`(?i)bytes|bounded|json|log|CR`)
	secondPattern = regexp.MustCompile(`^([\d.]+) s$`)
)

// statements checks the statements about a stream.
func (j *corpusJudge) statements(key string, want any, text string, bytes int64) {
	for _, statement := range texts(want) {
		switch m := countPattern.FindStringSubmatch(statement); {
		case m != nil:
			n, _ := strconv.Atoi(strings.ReplaceAll(m[1], ",", ""))
			if got := strings.Count(text, m[2]); got != n {
				j.wrong("%s has %d times %q, not %d", key, got, m[2], n)
			}
		case stringPattern.MatchString(statement):
			j.says(key, statement, text)
		case boundPattern.MatchString(statement):
			if int64(len(text)) > bytes+1<<20 || bytes == 0 {
				j.wrong("%s: %d bytes are kept of %d", key, len(text), bytes)
			}
		default:
			j.wrong("the statement %q about %s is not understood", statement, key)
		}
	}
}

// says checks "starts with", "contains" and "ends with". A list must be there in its order.
func (j *corpusJudge) says(what, statement, text string) {
	m := stringPattern.FindStringSubmatch(statement)
	if m == nil {
		j.wrong("the statement %q about %s is not understood", statement, what)
		return
	}
	rest, parts := text, []string{strings.Trim(m[2], "'")}
	if list, ok := strings.CutSuffix(m[2], ", in that order"); ok {
		parts = regexp.MustCompile(`, | and `).Split(list, -1)
	} else if !strings.HasPrefix(m[2], "'") {
		parts = []string{m[2]}
	}
	for _, part := range parts {
		i := strings.Index(rest, part)
		ok := i >= 0
		switch m[1] {
		case "starts with":
			ok = strings.HasPrefix(rest, part)
		case "ends with":
			last := rest[strings.LastIndexByte(rest, '\n')+1:]
			ok = strings.HasSuffix(rest, part) || strings.HasPrefix(last, part)
		}
		if !ok {
			j.wrong("%s does not fulfil %q: %.300q", what, statement, text)
			return
		}
		rest = rest[max(i, 0):]
	}
}

func (j *corpusJudge) traceback(want any) {
	if want == nil {
		if j.res.ErrorTraceback != nil {
			j.wrong("there is a traceback")
		}
		return
	}
	// A program that does not parse has no traceback of Python, but its last lines.
	text := j.res.ErrorSummary
	if j.res.ErrorTraceback != nil {
		text = *j.res.ErrorTraceback
	}
	for _, statement := range texts(want) {
		if m := keepsPattern.FindStringSubmatch(statement); m != nil {
			if !strings.Contains(text, m[1]) || len(text) > 1<<20 {
				j.wrong("the traceback of %d bytes does not fulfil %q", len(text), statement)
			}
			continue
		}
		j.says("the traceback", statement, text)
	}
}

// file checks what the result says of one path. Statements about all files are those that
// follow every run.
func (j *corpusJudge) file(path, statement string) {
	collected := slices.ContainsFunc(j.res.Outputs, func(o result.Output) bool { return o.Path == path })
	skipped := slices.ContainsFunc(j.res.OutputsSkipped, func(s result.SkippedOutput) bool { return strings.HasPrefix(s.Path, strings.TrimSuffix(path, "...")) })
	switch {
	case strings.HasSuffix(path, "*"):
	case strings.HasPrefix(statement, "collected"):
		if !collected {
			j.wrong("%s is not collected", path)
		}
	default:
		if collected || !skipped {
			j.wrong("%s: collected is %t, listed as skipped is %t", path, collected, skipped)
		}
	}
}

func (j *corpusJudge) seconds(text string) float64 {
	if m := secondPattern.FindStringSubmatch(text); m != nil {
		n, _ := strconv.ParseFloat(m[1], 64)
		return n
	}
	if text == "time_limit" {
		return j.limit
	}
	return j.limit + 2 + 5
}

// probesOf reads the lines "PROBE key=value detail".
func probesOf(stdout string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(stdout) {
		if rest, ok := strings.CutPrefix(line, "PROBE "); ok {
			key, value, _ := strings.Cut(strings.TrimSpace(rest), "=")
			value, _, _ = strings.Cut(value, " ")
			all[key] = value
		}
	}
	return all
}

// matches compares a name with a pattern in which a star stands for any text.
func matches(glob, name string) bool {
	return regexp.MustCompile(`^` + strings.ReplaceAll(regexp.QuoteMeta(glob), `\*`, `.*`) + `$`).MatchString(name)
}

func texts(value any) (all []string) {
	for _, each := range value.([]any) {
		all = append(all, each.(string))
	}
	return all
}
