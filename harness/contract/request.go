package contract

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// Labels of the runs of contracts.
const (
	labelExecution = "contract.execution_id"
	labelTool      = "contract.tool_id"
	labelHash      = "contract.sha256"
)

// buildRequest translates the contract into a request of the sandbox.
func (run *execution) buildRequest() {
	e, c := run.Effective, run.Effective.Contract
	req := run.Request
	if policy.CheckName("name", run.outcome.ExecutionID) == nil {
		req.Name = run.outcome.ExecutionID
	}
	req.Labels = map[string]string{}
	maps.Copy(req.Labels, run.Request.Labels)
	maps.Copy(req.Labels, run.job.labels)
	req.Labels[labelExecution] = text.Short(run.outcome.ExecutionID, mostShown)
	req.Labels[labelTool] = text.Short(c.ToolID, mostShown)
	req.Labels[labelHash] = e.ContractSHA256
	req.Script, req.Args = "", nil
	req.Command = append([]string{c.Inputs.Command}, c.Inputs.Arguments...)
	req.Stdin = c.Inputs.Stdin != nil
	req.Env = environment(c)

	req.Limits.Timeout, req.Limits.Memory, req.Limits.CPUs = e.Timeout, e.Memory, float64(e.CPUs)
	req.Limits.PIDs = 1 + e.MaxChildren // the program itself
	req.NoFork = !e.AllowFork
	req.Limits.CaptureStdout, req.Limits.CaptureStderr = max(e.Stdout, leastCapture), max(e.Stderr, leastCapture)

	files := run.resolved
	req.WorkDir, req.Mounts, req.Trees, req.Masks = files.WorkDir, files.Mounts, files.Trees, files.Masks
	req.Network, req.Egress = "", run.egress()

	run.request = req
}

// environment adds to the fixed environment of every run (DT-01). The variables of the
// contract take precedence.
func environment(c Contract) map[string]string {
	env := map[string]string{"TZ": "UTC"}
	_, lang := c.Inputs.Environment["LANG"]
	_, all := c.Inputs.Environment["LC_ALL"]
	if !lang && !all {
		env["LANG"], env["LC_ALL"] = "C.UTF-8", "C.UTF-8"
	}
	if seed := c.Determinism.Seed; seed != nil {
		maps.Copy(env, seedEnv(*seed))
	}
	maps.Copy(env, c.Inputs.Environment)
	return env
}

// seedEnv are the variables of a seed. Python takes 32 bits.
func seedEnv(seed int64) map[string]string {
	return map[string]string{"SEED": strconv.FormatInt(seed, 10), "PYTHONHASHSEED": strconv.FormatUint(uint64(uint32(seed)), 10)}
}

// egress is the rule set of the proxy; nil is offline.
func (run *execution) egress() *policy.Egress {
	network := run.Effective.Contract.Sandbox.Network
	egress := policy.Egress{Level: run.Effective.NetworkLevel, Allow: network.Allow, Deny: network.Deny}
	if egress.Offline() {
		return nil
	}
	if shared := run.Request.Egress; shared != nil {
		egress.Limits, egress.Resolve = shared.Limits, shared.Resolve
	}
	return &egress
}

// contractFields are the fields of a contract behind fields of a request. Fields without a code
// come from the settings, and all that are not listed are limits that follow from the
// contract's.
var contractFields = []struct{ names, field, code, hint string }{
	{"image,user,runtime,transfer,id,label,gpus,gpu_driver,state directory,script", "", "", ""},
	{"timeout", "sandbox.timeout_ms", "CX-02", hintMachine},
	{"memory", "sandbox.memory_mb", "CX-02", hintMachine},
	{"cpus", "sandbox.cpu_cores", "CX-02", hintMachine},
	{"pids-limit", "sandbox.processes.max_children", "CX-02", "for an engine that cannot enforce it, permit such runs with SANDBOX_ALLOW_UNENFORCED=true"},
	{"no-fork", "sandbox.processes.allow_fork", "CX-02", ""},
	{"capture-stdout", "outputs.capture.stdout_bytes", "CX-05", ""},
	{"capture-stderr", "outputs.capture.stderr_bytes", "CX-05", ""},
	{"env", "inputs.environment", "IV-04", ""},
	{"args,command", "inputs.arguments", "IV-02", ""},
	{"workdir", "inputs.working_directory", "IV-03", ""},
	{"mount,tree,mask", "sandbox.filesystem", "CX-03", ""},
	{"egress", "sandbox.network.level", "CX-04", ""},
	{"network level", "sandbox.network.level", "CX-04", hintEgress},
	{"allow-host", "sandbox.network.allow", "CX-04", hintPrivate},
	{"deny-host", "sandbox.network.deny", "CX-04", ""},
	{"network,add-host,egress-bytes,egress-connections,egress-requests,egress-time", "sandbox.network", "CX-04", ""},
}

// behind is a violation of the field of the contract behind a field of a request; ok is false
// for a field that no contract has.
func behind(name string) (v Violation, ok bool) {
	for _, f := range contractFields {
		if slices.Contains(strings.Split(f.names, ","), name) {
			return Violation{Code: f.code, Field: f.field, Hint: f.hint}, f.code != ""
		}
	}
	return Violation{Code: "CX-02", Field: "sandbox." + name, Hint: hintMachine}, true
}

// refusals translates the rules that the sandbox says are broken. It returns nil if the error
// has another cause.
func (run *execution) refusals(err error) []Violation {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []Violation
		for _, part := range joined.Unwrap() {
			refused := run.refusals(part)
			if refused == nil {
				return nil
			}
			all = append(all, refused...)
		}
		return all
	}
	if broken, ok := errors.AsType[*policy.FieldError](err); ok {
		v, known := behind(broken.Field)
		if !known {
			return nil
		}
		allowed, n := run.Effective.Contract.Sandbox.Network.Allow, broken.Entry
		if broken.Field == "allow-host" && n > 0 && n <= len(allowed) || broken.Field == "deny-host" && n > 0 {
			v.Field += fmt.Sprintf("[%d]", n-1)
		}
		v.Value, v.Rule = broken.Value, broken.Rule
		return []Violation{v}
	}
	broken, ok := errors.AsType[*sandbox.PathError](err)
	if !ok {
		return nil
	}
	if _, known := behind(broken.Field); !known {
		return nil
	}
	v := Violation{Code: "CX-03", Field: "sandbox.filesystem", Value: quoted(broken.Path), Rule: broken.Rule}
	if broken.Err != nil {
		v.Rule = fmt.Sprintf("%s: %v", v.Rule, broken.Err)
	}
	if i := slices.IndexFunc(run.resolved.opened, func(p hostPath) bool { return p.real == broken.Path }); i >= 0 {
		v.Field = run.resolved.opened[i].field
	}
	return []Violation{v}
}
