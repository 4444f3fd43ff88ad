package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/policy"
)

// input is a run that nothing speaks against.
func facts(t *testing.T, text string) Facts {
	t.Helper()
	w, err := Parse([]byte(text), "wish.yaml")
	require.NoError(t, err)
	lock, err := Seal(w, evidence.Toolchain{Image: "base", Mounts: []evidence.ToolMount{}})
	require.NoError(t, err)
	return Facts{
		Lock: lock, Sealed: true, Workspace: "/src/repo", WorkspaceExists: true,
		Repo: evidence.Repo{Commit: "abc", Root: "."}, Mode: evidence.Mode{Execute: true, Tools: true},
	}
}

func reasons(findings []evidence.Finding) []evidence.StopReason {
	var all []evidence.StopReason
	for _, f := range findings {
		all = append(all, f.Reason)
	}
	return all
}

// TestAllowUnobserved: only the wish allows it, and strict never does.
func TestAllowUnobserved(t *testing.T) {
	for _, c := range []struct{ wish, flag, strict, want bool }{
		{wish: true, want: true}, {wish: true, strict: true}, {flag: true}, {},
	} {
		in := facts(t, fmt.Sprintf("gate_commands: [a]\nallow_unobserved: %t", c.wish))
		in.Mode.AllowUnobserved, in.Mode.Strict = c.flag, c.strict
		m, _ := Build(in)
		require.Equal(t, c.want, m.Mode.AllowUnobserved, c)
	}
}

func TestBuild(t *testing.T) {
	in := facts(t, `
name: nightly
gate_commands: [pytest -q 'a b', {cmd: ruff check ., kind: check, timeout: 5s, expect_exit: 1, env: {A: "1"}}]
io_boundary: repo
env: {TZ: Europe/Berlin, B: "2"}
limits: {timeout: 1m, memory: 1g, cpus: 1.5, pids: 50, disk: 1g, log: 1m}
artifact_paths: ["dist/*"]
protected_paths: [secrets]
read_only_paths: [core]
exclude: [z, a]
normalize: [{name: r, pattern: x, replace: y}]
allow_suspects: [abc]
`)
	in.Exclude, in.Uncounted = []string{"out", "a"}, []string{"lock"}
	in.Mode.Repeats = 3
	m, findings := Build(in)
	require.Empty(t, findings)
	require.Equal(t, evidence.RunManifest{
		Schema: evidence.RunManifestV1, Name: "nightly", WishSHA256: in.Lock.SHA256,
		GateCommands: []string{"pytest -q 'a b'", "ruff check ."},
		Gates: []evidence.Gate{
			{
				Index: 1, Argv: []string{"pytest", "-q", "a b"}, Command: evidence.Command{
					Cmd: "pytest -q 'a b'", Kind: "tests", Report: "auto", ReportPath: reportFile,
					Env: map[string]string{"PYTEST_ADDOPTS": "--junit-xml=/work/final/report.xml -p no:cacheprovider"}, TimeoutMS: 60_000,
				},
			},
			{
				Index: 2, Argv: []string{"ruff", "check", "."}, Command: evidence.Command{
					Cmd: "ruff check .", ExpectExit: 1, Kind: "check", Report: "none", Env: map[string]string{"A": "1"}, TimeoutMS: 5_000,
				},
			},
		},
		IOBoundary: "repo/", Workspace: "/src/repo",
		EnvPolicy: evidence.EnvPolicy{
			Vars: map[string]string{
				"B": "2", "CI": "true", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1",
				"PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "315532800", "TERM": "dumb", "TZ": "Europe/Berlin",
			},
			Timezone: "Europe/Berlin", Locale: "C.UTF-8", HashSeed: "0",
		},
		TimeoutCaps: evidence.Caps{TimeoutMS: 60_000, MemoryBytes: 1 << 30, MilliCPUs: 1500, PIDs: 50, DiskBytes: 1 << 30, LogBytes: 1 << 20},
		Paths:       evidence.Paths{ArtifactPaths: []string{"dist/*"}, ProtectedPaths: []string{"secrets"}, ReadOnlyPaths: []string{"core"}, Exclude: []string{"a", "out", "z"}},
		Uncounted:   []string{"lock"},
		Toolchain:   in.Lock.Toolchain, Repo: in.Repo,
		Mode:  evidence.Mode{Execute: true, Sealed: true, Tools: true, Flags: evidence.Flags{Offline: true, ClaimGrade: true}, Repeats: 3},
		Rules: []evidence.Rule{{Name: "r", Pattern: "x", Replace: "y"}}, Allowed: []string{"abc"},
	}, m)

	again, _ := Build(in)
	require.Equal(t, m, again)
	text, err := json.Marshal(m)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), "null"), "only egress is null, lists never are: %s", text)
}

func TestBuildDefaults(t *testing.T) {
	m, findings := Build(facts(t, "gate_commands: [pytest]"))
	require.Empty(t, findings)
	require.Equal(t, "./", m.IOBoundary)
	require.Nil(t, m.Egress)
	require.Equal(t, 1, m.Mode.Repeats)
	require.Equal(t, time.Hour.Milliseconds(), m.TimeoutCaps.TimeoutMS)
	require.Equal(t, m.TimeoutCaps.TimeoutMS, m.Gates[0].TimeoutMS)
	require.Equal(t, int64(2<<30), m.TimeoutCaps.MemoryBytes)
	require.Equal(t, int64(2000), m.TimeoutCaps.MilliCPUs)
	require.Equal(t, int64(100<<20), m.TimeoutCaps.LogBytes)
}

type refuse struct{}

func (refuse) Check(argv []string) error {
	if argv[0] == "rm" {
		return errors.New("rm: is not a registered tool")
	}
	return nil
}

// TestBuildFinds: everything that stops a run before it begins.
func TestBuildFinds(t *testing.T) {
	for name, c := range map[string]struct {
		wish    string
		change  func(*Facts)
		reason  evidence.StopReason
		gate    int
		subject string
		detail  string
	}{
		"not sealed": {change: func(in *Facts) { in.Sealed = false }, reason: evidence.ReasonNotSealed, subject: "wish.lock.json", detail: "is not sealed"},
		"changed": {
			change: func(in *Facts) { in.Sealed, in.NotSealed = false, "It was changed." }, reason: evidence.ReasonNotSealed,
			subject: "wish.lock.json", detail: "It was changed.",
		},
		"no commands": {wish: "name: x", reason: evidence.ReasonNoCommands, subject: "gate_commands", detail: "has no commands"},
		"no workspace": {
			change: func(in *Facts) { in.WorkspaceExists = false }, reason: evidence.ReasonNoWorkspace, subject: ".", detail: "There is no folder",
		},
		"link out": {
			change: func(in *Facts) { in.WorkspaceExists, in.WorkspaceOutside = false, true }, reason: evidence.ReasonOutsideBoundary,
			subject: ".", detail: "leads out",
		},
		"dirty": {
			wish: "gate_commands: [a]\nstrict: true", change: func(in *Facts) { in.Repo.Dirty = true },
			reason: evidence.ReasonDirty, subject: "abc", detail: "is not what the commit says",
		},
		"dirty files": {
			change: func(in *Facts) {
				in.Repo.Dirty, in.Mode.Strict, in.Differs = true, true, []string{"1", "2\n", "3", "4", "5", "6"}
			},
			reason: evidence.ReasonDirty, subject: "abc", detail: `says in "1", "2\n", "3", "4", "5" and others, and the run is strict; `,
		},
		"line ends": {
			change: func(in *Facts) { in.Repo.Dirty, in.Mode.Strict, in.Differs = true, true, []string{"a.txt"} },
			reason: evidence.ReasonDirty, subject: "abc", detail: `in "a.txt", and the run is strict; commit, remove or ignore that. Files are compared as they are: what git converts by its attributes (eol, `,
		},
		"dirty without commit": {
			change: func(in *Facts) { in.Repo = evidence.Repo{Dirty: true}; in.Mode.Strict = true }, reason: evidence.ReasonDirty, subject: ".", detail: "strict",
		},
		"dirty by flag": {
			change: func(in *Facts) { in.Repo.Dirty, in.Mode.Strict = true, true }, reason: evidence.ReasonDirty, subject: "abc", detail: "strict",
		},
		"no commit": {
			change: func(in *Facts) { in.Repo.Commit, in.Mode.Strict = "", true }, reason: evidence.ReasonDirty, detail: "There is no commit",
		},
		"tool": {
			wish: "gate_commands: [pytest, rm -r x]", change: func(in *Facts) { in.Tools = refuse{} }, reason: evidence.ReasonToolRefused,
			gate: 2, subject: "rm", detail: "rm: is not a registered tool",
		},
		"memory": {
			wish: "gate_commands: [a]\nlimits: {memory: 8g}", change: func(in *Facts) { in.Policy.Max.Memory = policy.GiB },
			reason: evidence.ReasonToolRefused, subject: "limits", detail: "memory 8GiB: above the policy's maximum of 1GiB",
		},
		"timeout": {
			wish: "gate_commands: [{cmd: a, timeout: 2h}]", change: func(in *Facts) { in.Policy.Max.Timeout = time.Hour },
			reason: evidence.ReasonToolRefused, gate: 1, subject: "timeout", detail: "timeout 2h0m0s: above the policy's maximum of 1h0m0s",
		},
		"network": {
			wish: "gate_commands: [a]\nnetwork: {level: api, allow: [example.com]}", reason: evidence.ReasonToolRefused,
			subject: "network", detail: "the policy permits offline at most",
		},
		"outside": {
			wish: "gate_commands: [pytest, cat /etc/shadow]", reason: evidence.ReasonOutsideBoundary,
			gate: 2, subject: "/etc/shadow", detail: "The command names /etc/shadow, which lies outside of the boundary; it was not run.",
		},
		"operator in a changed lock": {
			change: func(in *Facts) { in.Lock.Wish.GateCommands[0].Cmd = "a | b" }, reason: evidence.ReasonToolRefused,
			gate: 1, subject: "gate_commands", detail: "has the operator |",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.wish == "" {
				c.wish = "gate_commands: [pytest]"
			}
			in := facts(t, c.wish)
			if c.change != nil {
				c.change(&in)
			}
			m, findings := Build(in)
			require.Equal(t, []evidence.StopReason{c.reason}, reasons(findings))
			require.Equal(t, c.gate, findings[0].Gate)
			require.Equal(t, c.subject, findings[0].Subject)
			require.Contains(t, findings[0].Detail, c.detail)
			require.Equal(t, string(c.reason), NewPlan(m, findings).StopReason)
		})
	}
}

// TestBuildFindsAll: no finding hides another.
func TestBuildFindsAll(t *testing.T) {
	_, findings := Build(Facts{Mode: evidence.Mode{Flags: evidence.Flags{Strict: true}}})
	require.Equal(t, []evidence.StopReason{
		evidence.ReasonNotSealed, evidence.ReasonNoCommands, evidence.ReasonNoWorkspace, evidence.ReasonDirty,
	}, reasons(findings))
}

// TestBuildIsNeverLaxer: flags add to the
func TestBuildIsNeverLaxer(t *testing.T) {
	in := facts(t, "gate_commands: [a]\nnetwork: {level: api, allow: [example.com]}\nclaim_grade: false\n")
	in.Policy.AllowEgress = policy.API
	m, findings := Build(in)
	require.Empty(t, findings)
	require.Equal(t, &evidence.Egress{Level: "api", Allow: []string{"example.com"}, Deny: []string{}}, m.Egress)
	require.False(t, m.Mode.Offline)

	in.Mode.Offline, in.Mode.ClaimGrade, in.Mode.Strict = true, true, true
	m, findings = Build(in)
	require.Empty(t, findings)
	require.Nil(t, m.Egress)
	require.True(t, m.Mode.Offline && m.Mode.ClaimGrade && m.Mode.Strict)

	in = facts(t, "gate_commands: [a]\nstrict: true\n")
	in.Mode.Offline = false
	m, _ = Build(in)
	require.True(t, m.Mode.Offline && m.Mode.ClaimGrade && m.Mode.Strict)
}

func TestAskForReport(t *testing.T) {
	const junit, noCache = "--junit-xml=/work/final/report.xml", "-p no:cacheprovider"
	for cmd, want := range map[string]struct {
		env  map[string]string
		path string
	}{
		"pytest -q":                          {map[string]string{"PYTEST_ADDOPTS": junit + " " + noCache}, reportFile},
		"python3 -m pytest":                  {map[string]string{"PYTEST_ADDOPTS": junit + " " + noCache}, reportFile},
		"make test":                          {map[string]string{"PYTEST_ADDOPTS": junit + " " + noCache}, reportFile},
		"pytest --lf":                        {map[string]string{"PYTEST_ADDOPTS": junit}, reportFile},
		"pytest --junitxml=out/r.xml":        {map[string]string{"PYTEST_ADDOPTS": noCache}, "out/r.xml"},
		"pytest --junit-xml /repo/out/r.xml": {map[string]string{"PYTEST_ADDOPTS": noCache}, "out/r.xml"},
		"go test ./...":                      {map[string]string{"GOFLAGS": "-json"}, ""},
		"/host/go/bin/go -C sub test ./...":  {map[string]string{"GOFLAGS": "-json"}, ""},
		"go test -json ./...":                {map[string]string{"GOFLAGS": "-json"}, ""},
		"go build ./...":                     {map[string]string{"PYTEST_ADDOPTS": junit + " " + noCache}, reportFile},
		"go test ./... -args -json":          {map[string]string{"GOFLAGS": "-json"}, ""},
	} {
		m, findings := Build(facts(t, "gate_commands: ['"+cmd+"']"))
		require.Empty(t, findings, cmd)
		require.Equal(t, want.env, m.Gates[0].Env, cmd)
		require.Equal(t, want.path, m.Gates[0].ReportPath, cmd)
		require.Equal(t, evidence.ReportAuto, m.Gates[0].Report)
	}
	for text, want := range map[string]map[string]string{
		"env: {GOFLAGS: -mod=mod}\ngate_commands: [go test]":                                {"GOFLAGS": "-json -mod=mod"},
		"env: {GOFLAGS: -mod=mod}\ngate_commands: [{cmd: go test, env: {GOFLAGS: -v}}]":     {"GOFLAGS": "-json -v"},
		"env: {PYTEST_ADDOPTS: -x}\ngate_commands: [pytest]":                                {"PYTEST_ADDOPTS": junit + " " + noCache + " -x"},
		"gate_commands: [{cmd: go vet, kind: check}]":                                       {},
		"gate_commands: [{cmd: pytest, report_path: out.xml}]":                              {},
		"gate_commands: [{cmd: make, report: go-test}]":                                     {},
		"gate_commands: [{cmd: go test, report: pytest}]":                                   {"PYTEST_ADDOPTS": junit + " " + noCache},
		"gate_commands: [{cmd: go test, report: go-test, env: {GOFLAGS: '-count=1'}}]":      {"GOFLAGS": "-json -count=1"},
		"gate_commands: [{cmd: pytest, kind: check, env: {PYTEST_ADDOPTS: '--maxfail=1'}}]": {"PYTEST_ADDOPTS": "--maxfail=1"},
	} {
		m, findings := Build(facts(t, text))
		require.Empty(t, findings, text)
		require.Equal(t, want, m.Gates[0].Env, text)
	}
}

func TestOutside(t *testing.T) {
	for cmd, want := range map[string][]string{
		"pytest -q tests/test_a.py::test_b[1]":           nil,
		"/usr/bin/python3 -m pytest /repo/tests":         nil,
		"sh -c 'echo x > /dev/null 2>/tmp/y'":            nil,
		"/host/go/bin/go test ./...":                     nil,
		"git diff HEAD~1 a..b":                           nil,
		"pip install x~=1.0 https://example.com/etc/x":   nil,
		"awk '/x/ {print}' a":                            nil,
		"sed s/a/b/ x":                                   nil,
		"cmake --prefix=/opt/x -I/usr/include a/../b":    nil,
		"cat /etc/shadow":                                {"/etc/shadow"},
		"cat /repo/../etc/passwd":                        {"/repo/../etc/passwd"},
		"cat ../other ../../x":                           {"../other", "../../x"},
		"cat a/../../b":                                  {"a/../../b"},
		"cat ~/.ssh/id_rsa ~root/x ~":                    {"~/.ssh/id_rsa", "~root/x", "~"},
		"pytest --rootdir=/srv/x -c/etc/x":               {"/srv/x", "/etc/x"},
		"tool -v /data:/etc @/root/x":                    {"/data", "/etc", "/root/x"},
		"/home/me/venv/bin/pytest":                       {"/home/me/venv/bin/pytest"},
		"sh -c 'cat </etc/shadow; ls ~/.ssh'":            {"/etc/shadow", "~/.ssh"},
		"sh -c 'cd ../.. && ls'":                         {"../.."},
		`python3 -c 'open("/etc/shadow").read()'`:        {"/etc/shadow"},
		`python3 -c "print(open('/proc/1/environ'))"`:    {"/proc/1/environ"},
		"curl file:///etc/passwd":                        {"/etc/passwd"},
		"ls /":                                           {"/"},
		"cat secrets/key ./secrets /repo/secrets secret": {"secrets/key", "./secrets", "/repo/secrets"},
		"sh -c 'cat secrets/key'":                        {"secrets/key"},
		"cat --file=secrets":                             {"secrets"},
	} {
		words, err := split(cmd)
		require.NoError(t, err, cmd)
		var got []string
		for _, o := range outsideOf(words, []string{"secrets"}) {
			got = append(got, o.path)
		}
		require.Equal(t, want, got, cmd)
	}
}

func TestPlan(t *testing.T) {
	in := facts(t, "gate_commands: [{cmd: a, timeout: 1s}, {cmd: b, timeout: 2s}]")
	in.Mode.Repeats = 2
	m, findings := Build(in)
	m.Baseline = "/base"
	p := NewPlan(m, findings)
	require.Equal(t, map[string]int64{"iterations": 3, "tool_calls": 6, "milliseconds": 9000}, p.LoopBudgets)
	require.Equal(t, []string{"a", "b"}, p.GateCommands)
	require.Equal(t, 274177, p.VerificationRungTarget)
	require.Zero(t, p.VerificationRung)
	text, err := json.Marshal(p)
	require.NoError(t, err)
	var keys map[string]any
	require.NoError(t, json.Unmarshal(text, &keys))
	for _, key := range []string{
		"skill_version", "profile", "stop_reason", "last_known_state", "loop_budgets", "localization_summary", "verification_rung_target",
		"verification_rung", "seed_agreement", "null_checks_performed", "forecast_summary", "env_snapshot_pointer", "evidence_manifest_pointer",
	} {
		require.NotNil(t, keys[key], key)
	}
}
