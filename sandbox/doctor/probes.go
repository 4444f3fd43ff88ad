package doctor

import (
	"cmp"
	"context"
	_ "embed" // for go:embed
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// insideProbe is a program that examines its container and prints its findings as JSON.
//
//go:embed probe.py
var insideProbe string

// A trial is one small program in the sandbox and the judgment of its result.
type trial struct {
	check   string
	program string
	limits  policy.Limits
	judge   func(*result.Result) []Finding
}

// probePIDs is the process limit that the inside probe runs against.
const probePIDs = 24

// podShare are the processors of a trial in a pod: small nodes have room for all of them.
const podShare = 0.25

var trials = []trial{
	{check: "inside", program: insideProbe, limits: policy.Limits{PIDs: probePIDs}, judge: judgeInside},
	{
		check: "memory limit", program: "held = b'x' * (512 << 20)", limits: policy.Limits{Memory: 48 * policy.MiB},
		judge: expectStatus("memory limit", "a program that takes 512 MiB of 48 MiB", result.StatusOutOfMemory),
	},
	{
		check: "time limit", limits: policy.Limits{Timeout: 500 * time.Millisecond, Grace: 200 * time.Millisecond},
		program: "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
		judge:   expectStatus("time limit", "a program that sleeps and ignores SIGTERM", result.StatusTimedOut),
	},
	{
		check: "disk limit", limits: policy.Limits{Disk: policy.MiB},
		// Python ignores the kernel's signal for a file that is too large, and gets an error instead.
		program: "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); open('final/big', 'wb').write(bytes(16 << 20))",
		judge:   expectStatus("disk limit", "a program that writes 16 MiB of 1 MiB", result.StatusDiskLimit),
	},
}

// probe runs all trials, side by side, and returns their findings in order.
func (m Machine) probe(ctx context.Context) []Finding {
	findings := make([][]Finding, len(trials))
	var group errgroup.Group
	for i, t := range trials {
		group.Go(func() error {
			findings[i] = t.run(ctx, m)
			return nil
		})
	}
	_ = group.Wait() // trials have findings, not errors
	var all []Finding
	for _, f := range findings {
		all = append(all, f...)
	}
	return all
}

// run does one trial. The record of one that went well is deleted.
func (t trial) run(ctx context.Context, m Machine) []Finding {
	req := m.program(t.program)
	req.Name = "doctor"
	req.Limits = t.limits
	if m.Cluster != nil {
		req.Limits.PIDs = 0        // a run that asks for this limit is refused
		req.Limits.CPUs = podShare // a pod reserves them, and four pods run side by side
	}
	req.Limits.Timeout = cmp.Or(t.limits.Timeout, 20*time.Second)
	req.Limits.Memory = cmp.Or(t.limits.Memory, 256*policy.MiB)
	res, err := m.Runner.Run(ctx, req)
	if err != nil {
		return []Finding{failed(t.check, err)}
	}
	findings := t.judge(res)
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.Verdict == Fail }) {
		return findings
	}
	if err := m.Runner.Store().Remove(res.ID); err != nil {
		findings = append(findings, failed(t.check, err))
	}
	return findings
}

// program is a request for Python code, with no network.
func (m Machine) program(code string) sandbox.Request {
	req := m.Request
	req.Network, req.Command = "none", []string{"python3", "-c", code}
	return req
}

// expectStatus judges a trial by how it ended.
func expectStatus(check, what string, want result.Status) func(*result.Result) []Finding {
	return func(res *result.Result) []Finding {
		f := Finding{Check: check, Verdict: OK, Seen: fmt.Sprintf("%s is ended (%s)", what, res.Status)}
		if res.Status != want {
			f.Verdict, f.Seen = Fail, fmt.Sprintf("%s ended as %s, not %s", what, res.Status, want)
			f.Advice = "see what happened with: sandbox show " + res.ID
		}
		return []Finding{f}
	}
}

// insideFacts is the JSON of the inside probe.
type insideFacts struct {
	UID             int      `json:"uid"`
	Capabilities    string   `json:"capabilities"`
	NoNewPrivileges string   `json:"no_new_privileges"`
	Seccomp         string   `json:"seccomp"`
	RootReadOnly    bool     `json:"root_read_only"`
	InputReadOnly   bool     `json:"input_read_only"`
	FinalWritable   bool     `json:"final_writable"`
	Interfaces      []string `json:"interfaces"`
	Reachable       bool     `json:"reachable"`
	Forks           int      `json:"forks"`
}

// judgeInside judges the findings of the inside probe.
func judgeInside(res *result.Result) []Finding {
	var facts insideFacts
	if err := json.Unmarshal([]byte(res.Stdout), &facts); err != nil {
		why := cmp.Or(strings.TrimSpace(res.ErrorSummary), res.Explanation)
		return []Finding{failed("inside", errors.New("the probe said nothing that can be read: "+why))}
	}
	var findings []Finding
	judge := func(check string, ok bool, seen, broken string, args ...any) {
		f := Finding{Check: check, Verdict: OK, Seen: seen}
		if !ok {
			f = Finding{Check: check, Verdict: Fail, Seen: fmt.Sprintf(broken, args...),
				Advice: "do not run what you do not trust here; see: sandbox show " + res.ID}
		}
		findings = append(findings, f)
	}
	user := fmt.Sprintf("programs run as uid %d", facts.UID)
	if res.Enforced.Isolation.UserNamespace {
		user += " of the engine's user namespace"
	}
	judge("user", facts.UID != 0 || res.Enforced.Isolation.UserNamespace, user, "programs run as root")
	judge("capabilities", strings.Trim(facts.Capabilities, "0") == "", "none", "programs hold %s", facts.Capabilities)
	judge("privileges", facts.NoNewPrivileges == "1", "cannot be gained by running a file", "can be gained by running a file")
	judge("system calls", facts.Seccomp == "2", "are filtered", "are not filtered (seccomp mode %s)", facts.Seccomp)
	judge("root file system", facts.RootReadOnly, "is read-only", "is writable")
	judge("input", facts.InputReadOnly, "is read-only", "is writable")
	judge("final", facts.FinalWritable, "is writable", "is not writable for the program's user")
	unenforced := res.Enforced.Unenforced
	if !slices.Contains(unenforced, spec.LimitInterfaces) && !slices.Contains(unenforced, spec.LimitNetwork) {
		judge("network", !facts.Reachable && len(facts.Interfaces) == 0, "none: no interface, no route",
			"is there: interfaces %s, route %t", strings.Join(facts.Interfaces, " "), facts.Reachable)
	}
	if !slices.Contains(unenforced, spec.LimitPIDs) {
		judge("process limit", facts.Forks > 0 && facts.Forks < probePIDs, fmt.Sprintf("stops at %d of %d", facts.Forks, probePIDs),
			"%d processes of %d could be started", facts.Forks, probePIDs)
	}
	return findings
}
