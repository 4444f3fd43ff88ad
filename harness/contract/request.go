package contract

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// Labels of the runs of contracts.
const (
	labelExecution = "contract.execution_id"
	labelTool      = "contract.tool_id"
	labelHash      = "contract.sha256"
)

// planRequest says to the sandbox what the contract says. It is pure, but for the ID
// of the run.
func (run *execution) planRequest() {
	e, c := run.effective, run.effective.Contract
	req := run.Request
	req.ID = record.NewID(run.now())
	if policy.CheckName("name", run.outcome.ExecutionID) == nil {
		req.Name = run.outcome.ExecutionID
	}
	req.Labels = map[string]string{}
	maps.Copy(req.Labels, run.Request.Labels)
	req.Labels[labelExecution] = text.Short(run.outcome.ExecutionID, mostShown)
	req.Labels[labelTool] = text.Short(c.ToolID, mostShown)
	req.Labels[labelHash] = e.ContractSHA256
	req.Script, req.Args = "", nil
	req.Command = append([]string{c.Inputs.Command}, c.Inputs.Arguments...)
	req.Stdin = c.Inputs.Stdin != nil
	req.Env = environment(c)

	req.Limits.Timeout = e.Timeout
	req.Limits.Memory = e.Memory
	req.Limits.CPUs = float64(e.CPUs)
	req.Limits.PIDs = 1 + e.MaxChildren // the program itself
	req.NoFork = !e.AllowFork
	req.Limits.CaptureStdout, req.Limits.CaptureStderr = max(e.Stdout, leastCapture), max(e.Stderr, leastCapture)

	req.WorkDir = run.resolved.WorkDir
	req.Mounts, req.Trees, req.Masks = run.resolved.Mounts, run.resolved.Trees, run.resolved.Masks
	req.Network = ""
	req.Egress = run.egress()
	if run.Store != nil {
		run.record = run.Store.RecordDir(req.ID)
		if run.final = req.Final; run.final == "" {
			run.final = filepath.Join(run.record, "final")
		}
	}
	run.request = req
}

// streams are those of the executor, with the contract's stdin.
func (run *execution) streams() sandbox.IO {
	streams := sandbox.IO{Stdout: run.IO.Stdout, Stderr: run.IO.Stderr}
	if text := run.effective.Contract.Inputs.Stdin; text != nil {
		streams.Stdin = strings.NewReader(*text)
	}
	return streams
}

// environment is what the program is given beside the fixed environment of every run
// (DT-01). What the contract says itself is as fixed.
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

// seedEnv are the variables that a seed sets.
func seedEnv(seed int64) map[string]string {
	// Python takes 32 bits.
	return map[string]string{"SEED": strconv.FormatInt(seed, 10), "PYTHONHASHSEED": strconv.FormatUint(uint64(uint32(seed)), 10)}
}

// egress is what the proxy of the run lets through; nil is offline.
func (run *execution) egress() *policy.Egress {
	if run.effective.NetworkLevel == "" || run.effective.NetworkLevel == policy.Offline {
		return nil
	}
	network := run.effective.Contract.Sandbox.Network
	egress := policy.Egress{Level: run.effective.NetworkLevel, Allow: network.Allow, Deny: network.Deny}
	if common := run.Request.Egress; common != nil {
		egress.Limits, egress.Resolve = common.Limits, maps.Clone(common.Resolve)
	}
	for name, addresses := range run.AddHosts {
		if egress.Resolve == nil {
			egress.Resolve = map[string][]netip.Addr{}
		}
		egress.Resolve[name] = addresses
	}
	return &egress
}

// refusals are the rules that the sandbox itself says are broken; nil if an error is
// about something else.
func (run *execution) refusals(err error) []Violation {
	if err == nil {
		return nil
	}
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
	var field *policy.FieldError
	var path *sandbox.PathError
	switch {
	case errors.As(err, &field) && !ours[field.Field]:
		name, code := fieldOf(field.Field)
		if name == "sandbox.network" {
			name = run.networkField(field)
		}
		return []Violation{{Code: code, Field: name, Value: field.Value, Rule: field.Rule}}
	case errors.As(err, &path) && path.Field != "state folder" && path.Field != "script":
		rule := path.Rule
		if path.Err != nil {
			rule = fmt.Sprintf("%s: %v", rule, path.Err)
		}
		return []Violation{{Code: "CX-03", Field: run.filesystemField(path.Path), Value: quoted(path.Path), Rule: rule}}
	}
	return nil
}

// networkField is the field of the contract that a rule of the proxy is about.
func (run *execution) networkField(broken *policy.FieldError) string {
	const network = "sandbox.network"
	given := run.effective.Contract.Sandbox.Network
	switch broken.Field {
	case "network level", "egress":
		return network + ".level"
	case "allow-host":
		return entryField(network+".allow", given.Allow, broken.Value)
	case "deny-host":
		return entryField(network+".deny", given.Deny, broken.Value)
	}
	return network
}

// entryField is the entry of a list that a value quotes, or the list.
func entryField(list string, entries []string, quote string) string {
	for i, entry := range entries {
		if quote == fmt.Sprintf("%q", entry) || quote == fmt.Sprintf("%.200q", entry) {
			return fmt.Sprintf("%s[%d]", list, i)
		}
	}
	return list
}

// filesystemField is the field of the contract that opens a host path.
func (run *execution) filesystemField(path string) string {
	for _, p := range run.resolved.places {
		if p.real == path {
			return p.field
		}
	}
	return "sandbox.filesystem"
}

// ours are fields of a request that no contract names: what is wrong with them is
// wrong with the settings.
var ours = map[string]bool{"image": true, "user": true, "runtime": true, "transfer": true, "id": true, "label": true, "gpus": true, "gpu_driver": true}

// fieldOf is the field of a contract behind one of a request, and its code.
func fieldOf(field string) (name, code string) {
	switch field {
	case "timeout":
		return "sandbox.timeout_ms", "CX-02"
	case "memory":
		return "sandbox.memory_mb", "CX-02"
	case "cpus":
		return "sandbox.cpu_cores", "CX-02"
	case "pids-limit":
		return "sandbox.processes.max_children", "CX-02"
	case "no-fork":
		return "sandbox.processes.allow_fork", "CX-02"
	case "capture-stdout":
		return "outputs.capture.stdout_bytes", "CX-05"
	case "capture-stderr":
		return "outputs.capture.stderr_bytes", "CX-05"
	case "env":
		return "inputs.environment", "IV-04"
	case "args", "command":
		return "inputs.arguments", "IV-02"
	case "workdir":
		return "inputs.working_directory", "IV-03"
	case "egress", "network", "network level", "allow-host", "deny-host", "add-host",
		"egress-bytes", "egress-connections", "egress-requests", "egress-time":
		return "sandbox.network", "CX-04"
	case "mount", "tree", "mask":
		return "sandbox.filesystem", "CX-03"
	}
	return "sandbox." + field, "CX-02"
}
