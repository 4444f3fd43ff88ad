package mcp

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/cmd/sandbox/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/gate"
	wish "github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox"

	contracts "github.com/evalbox/evalbox/harness/contract"
)

// addHarnesses makes the harnesses, and adds their tools.
func (v *server) addHarnesses(o options) error {
	hooks := sandbox.Hooks{Kill: v.box.kill}
	evaluations, err := evaluate.New(v.box, evaluate.Options{Request: v.settings.Request(), Hooks: hooks})
	if err != nil {
		return err
	}
	contractHarness, tools, err := v.newContracts()
	if err != nil {
		return err
	}
	gates, err := gate.New(v.box, gate.Options{Request: v.settings.Request(), Policy: v.settings.Policy(), Hooks: hooks})
	if err != nil {
		return err
	}
	all := []harnessTool{{
		name: "evaluate_solution", title: "Evaluate a solution",
		description: "Evaluate a solution script of a task: check it, run it on the data of the task, and return its score. " +
			"Give script or script_file, and task or task_file. Without workspace, the script and its final/ are below work/ of the root.",
		harness: evaluations.Trial(), paths: []string{"script_file", "task_file", "workspace"}, more: v.evaluation,
	}, {
		name: "execute_contract", title: "Carry out a contract",
		description: "Carry out a code execution contract: run a tool with the permissions that the contract lists, and compare its outputs with it. " +
			"A contract that needs an approval is refused. " + tools,
		harness: contractHarness,
	}, {
		name: "run_gate", title: "Run a gate",
		description: "Run the tests of a workspace in fresh containers, and keep evidence in the directory out: PASS, BLOCKED or NEED_INFO. " +
			"Give wish or command. The workspace is not changed.",
		harness: gates.Trial(), paths: []string{"wish", "workspace", "out", "reports"}, more: v.gateRun,
	}}
	if o.exec != "" {
		invocations, err := v.newInvocations(o, hooks)
		if err != nil {
			return err
		}
		all = append(all, harnessTool{
			name: "invoke_tool", title: "Call the tool",
			description: "Call the tool of this server, " + o.exec + ", with a configuration file. " +
				"It writes its artifacts to output_dir, an existing directory, and they are checked.",
			harness: invocations.Trial(), paths: []string{"config", "output_dir"},
		})
	}
	for _, t := range all {
		if err := v.addHarness(t); err != nil {
			return err
		}
	}
	return nil
}

// newContracts makes the harness of contracts. tools says which tools and adapters there are.
func (v *server) newContracts() (h trial.Harness, tools string, err error) {
	o, err := contract.ServerOptions(v.settings, v.root.path)
	if err != nil {
		return nil, "", err
	}
	o.Remote = v.permitRemote
	made, err := contracts.New(v.box, o)
	if err != nil {
		return nil, "", err
	}
	return made.Trial(), toolsText(o.Rules), nil
}

// maxTools bounds the text about the tools of contracts, in bytes.
const maxTools = 4 << 10

// toolsText lists the tools and adapters that a contract may name.
func toolsText(rules contracts.Rules) string {
	var tools, adapters []string
	for _, t := range rules.Registry.Tools() {
		if t.Status != registry.Blocked && len(t.Scope.Commands) > 0 {
			tools = append(tools, t.ID+" ("+strings.Join(t.Scope.Commands, ", ")+")")
		}
	}
	if known, ok := rules.Adapters.(*adapter.Registry); ok {
		for _, a := range known.List("") {
			adapters = append(adapters, fmt.Sprintf("%s (%s, for %s)", a.ID, a.Name, a.ToolID))
		}
	}
	return text.Short("Tools by tool_id, with their commands: "+strings.Join(tools, "; ")+". Adapters by adapter_id: "+strings.Join(adapters, "; ")+".", maxTools)
}

// permitRemote permits a call that an adapter makes from this process, which has the secrets of the
// operator: only those that the operator names, within the limits and quotas.
func (v *server) permitRemote(e contracts.Effective) (done func(time.Duration), err error) {
	id := e.Adapted.ID
	switch most := v.settings.Max.Timeout; {
	case !slices.Contains(v.remote, id):
		return nil, fmt.Errorf("calls a server from this process, which the operator has not permitted (--remote-adapter %s)", id)
	case most > 0 && e.Timeout > most:
		return nil, fmt.Errorf("would take up to %v, and the maximum of this server is %v: lower sandbox.timeout_ms", e.Timeout, most)
	}
	if err := v.box.quota.take(); err != nil {
		return nil, err
	}
	return func(took time.Duration) { v.box.quota.use(took.Seconds(), 0) }, nil
}

// newInvocations makes the harness of the tool of the operator.
func (v *server) newInvocations(o options, hooks sandbox.Hooks) (*invoke.Harness, error) {
	root := o.execRoot
	if root != "" {
		abs, err := filepath.Abs(root)
		if err != nil {
			return nil, err
		}
		root = fsx.RealPath(abs)
		v.box.own = append(v.box.own, root)
	}
	timeout := invoke.DefaultTimeout
	if most := v.settings.Max.Timeout; v.settings.Defaults.Timeout == most || most < timeout {
		timeout = most // the operator's own, or a lower ceiling
	}
	return invoke.New(v.box, invoke.Options{Executable: o.exec, Root: root, Timeout: timeout, Request: v.settings.Request(), Hooks: hooks})
}

// maxDocument bounds a file of a document that the server reads itself, in bytes.
const maxDocument = 4 << 20

// evaluation reads the files of an evaluation, and gives it a workspace and a time limit.
func (v *server) evaluation(d document, id string, p *place) error {
	if file := d.text("script_file"); file != "" {
		script, err := v.root.read("script_file", file, maxDocument)
		if err != nil {
			return err
		}
		if err := d.set("script", string(script)); err != nil {
			return err
		}
		delete(d, "script_file")
	}
	if err := v.task(d, p); err != nil {
		return err
	}
	if d.text("workspace") == "" {
		workspace, err := v.root.resolve("workspace", filepath.Join("work", id))
		if err == nil {
			err = d.set("workspace", workspace)
		}
		if err != nil {
			return err
		}
	}
	p.final = filepath.Join(d.text("workspace"), "final")
	if _, given := d["timeout_seconds"]; given {
		return nil
	}
	return d.set("timeout_seconds", v.settings.Timeout().Seconds())
}

// task resolves the directory of the data of a task, which comes with the document or in a file.
func (v *server) task(d document, p *place) error {
	base, dir := v.root.path, "input"
	var task evaluate.TaskDescription
	file := d.text("task_file")
	switch {
	case file != "":
		content, err := v.root.read("task_file", file, maxDocument)
		if err != nil {
			return err
		}
		if task, err = evaluate.ParseTask(content, filepath.Base(file)); err != nil {
			return refusef("correct the task file", "%v", err)
		}
		base, dir = filepath.Dir(file), task.DataDir
	case d["task"] != nil:
		if err := json.Unmarshal(d["task"], &task); err != nil {
			return nil //nolint:nilerr // the harness says why
		}
		if task.DataDir != "" {
			dir = task.DataDir
		}
	default:
		return nil
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(base, dir)
	}
	real, err := v.root.resolve("data_dir", dir)
	if err != nil {
		return err
	}
	task.DataDir = real
	_, input, err := task.Directories()
	if err == nil {
		input, err = v.root.resolve("data_dir", input)
	}
	if err != nil {
		return err
	}
	p.paths = append(p.paths, input)
	if err := task.CheckData(); err != nil {
		return err
	}
	if file == "" {
		return setIn(d, "task", "data_dir", real)
	}
	delete(d, "task_file")
	return d.set("task", task)
}

// setIn sets a key of an object in a document, and leaves its other keys to the harness.
func setIn(d document, key, inner string, value any) error {
	object := document{}
	if err := json.Unmarshal(d[key], &object); err != nil {
		return err
	}
	if err := object.set(inner, value); err != nil {
		return err
	}
	return d.set(key, object)
}

// gateRun refuses a wish that mounts directories outside of the root. A command runs in the root
// unless it names a workspace.
func (v *server) gateRun(d document, _ string, _ *place) error {
	file := d.text("wish")
	if file == "" {
		if _, given := d["workspace"]; !given {
			return d.set("workspace", v.root.path)
		}
		return nil
	}
	content, err := v.root.read("wish", file, wish.MaxDocument)
	if err != nil {
		return err
	}
	var sources []string
	lock, err := wish.ParseLock(content, filepath.Base(file))
	if err == nil || lock.Schema != "" {
		for _, m := range lock.Toolchain.Mounts {
			sources = append(sources, m.Source)
		}
	} else if lock.Wish, err = wish.Parse(content, filepath.Base(file)); err != nil {
		return refusef("correct the wish", "%v", err)
	}
	for _, tool := range lock.Wish.Toolchain {
		sources = append(sources, tool.Source)
	}
	for _, source := range sources {
		if _, err := v.root.resolve("toolchain", source); err != nil {
			return err
		}
	}
	return nil
}
