package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
)

// A harnessTool is a tool whose arguments are the document of a harness.
type harnessTool struct {
	name, title, description string
	harness                  trial.Harness
	// paths are the keys of the document whose values are paths of this machine, or lists of them.
	paths []string
	// more, if set, checks and completes a document whose paths are resolved. id is that of the job.
	more func(d document, id string, p *place) error
}

// A document is that of a harness, by its keys.
type document map[string]json.RawMessage

// text returns a text of the document; empty for none.
func (d document) text(key string) (value string) {
	_ = json.Unmarshal(d[key], &value) // anything else is refused by the harness
	return value
}

func (d document) set(key string, value any) error {
	content, err := json.Marshal(value)
	d[key] = content
	return err
}

// addHarness adds the tool of a harness.
func (v *server) addHarness(t harnessTool) error {
	schema, name, err := toolSchema(t.harness.Schema())
	if err != nil {
		return fmt.Errorf("the schema of %s: %w", t.name, err)
	}
	v.work(&sdk.Tool{
		Name: t.name, Title: t.title, Description: t.description, InputSchema: schema,
		Annotations: &sdk.ToolAnnotations{OpenWorldHint: new(bool)},
	}, func(ctx context.Context, c *call) (answer, error) {
		job := trial.Job{ID: trial.NewID(), Kind: t.harness.Kind(), Parent: v.box.session}
		d, err := readDocument(c.args)
		if err != nil {
			return answer{}, err
		}
		release, err := v.prepare(t, &job, d, name)
		if err != nil {
			return answer{}, err
		}
		defer release()
		return v.runJob(ctx, c, t.harness, job)
	})
	return nil
}

// toolSchema is the schema of a document as clients take it: providers of models refuse choices at
// the top level. name is the name of the form, which a call may leave out.
func toolSchema(text []byte) (schema map[string]any, name string, err error) {
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, "", err
	}
	for _, key := range []string{"$schema", "$id", "title", "oneOf", "anyOf", "allOf"} {
		delete(schema, key)
	}
	properties, _ := schema["properties"].(map[string]any)
	if form, ok := properties["schema"].(map[string]any); ok {
		name, _ = form["const"].(string)
	}
	if required, ok := schema["required"].([]any); ok && name != "" {
		schema["required"] = slices.DeleteFunc(required, func(key any) bool { return key == "schema" })
	}
	return schema, name, nil
}

// readDocument reads the arguments of a call.
func readDocument(args json.RawMessage) (document, error) {
	d := document{}
	if err := json.Unmarshal(args, &d); err != nil || d == nil {
		return nil, refusef(schemaHint, "arguments: must be a JSON object")
	}
	return d, nil
}

const schemaHint = "see the schema of the tool"

// prepare turns the arguments of a call into the document of a job. Every path is resolved, and
// kept for the job until release is called.
func (v *server) prepare(t harnessTool, job *trial.Job, d document, schema string) (release func(), err error) {
	if _, given := d["schema"]; !given && schema != "" {
		if err := d.set("schema", schema); err != nil {
			return nil, err
		}
	}
	p := &place{}
	for _, key := range t.paths {
		if err := v.resolveIn(d, key, p); err != nil {
			return nil, err
		}
	}
	if t.more != nil {
		if err := t.more(d, job.ID, p); err != nil {
			return nil, err
		}
	}
	if job.Spec, err = json.Marshal(d); err != nil {
		return nil, err
	}
	return v.places.claim(p)
}

// resolveIn resolves the path of a key, or the paths of its list.
func (v *server) resolveIn(d document, key string, p *place) error {
	content, ok := d[key]
	if !ok {
		return nil
	}
	var one string
	var list []string
	switch {
	case json.Unmarshal(content, &one) == nil:
		real, err := v.root.resolve(key, one)
		if err != nil {
			return err
		}
		p.paths = append(p.paths, real)
		return d.set(key, real)
	case json.Unmarshal(content, &list) == nil:
		for i := range list {
			real, err := v.root.resolve(fmt.Sprintf("%s[%d]", key, i), list[i])
			if err != nil {
				return err
			}
			p.paths, list[i] = append(p.paths, real), real
		}
		return d.set(key, list)
	}
	return refusef(rootHint, "%s: must be a path", key)
}

// runJob runs one job of a harness, and records it.
func (v *server) runJob(ctx context.Context, c *call, h trial.Harness, job trial.Job) (answer, error) {
	var end *trial.Result
	queue := trial.Queue{Log: v.log, Emit: func(e trial.Event) error {
		switch e.Kind {
		case trial.EventWaiting:
			c.progress.say("waiting for %s", e.Text)
		case trial.EventStarted:
			c.progress.say("%s", strings.TrimSpace("started "+e.Role))
		case trial.EventEnded:
			end = e.Result
			c.progress.say("ended: %s", e.Result.Verdict)
		case trial.EventRetry, trial.EventKnown, trial.EventNote:
		}
		return nil
	}}
	if err := v.box.quota.charge(len(job.Spec)); err != nil {
		return answer{}, err
	}
	_, err := queue.Run(ctx, h, func(yield func(trial.Job) bool) { yield(job) })
	switch {
	case ctx.Err() != nil:
		return answer{}, context.Cause(ctx)
	case err != nil:
		return answer{}, err
	case end == nil:
		return answer{}, errors.New("the job has no result")
	case end.Verdict == trial.Refused:
		return answer{}, refusedBy(*end)
	case end.Verdict == trial.Inconclusive:
		return answer{}, fmt.Errorf("trial %s is inconclusive: %s", end.Job.ID, problemsText(end.Problems, end.Reason))
	}
	_ = v.box.quota.charge(len(end.Detail)) // it is written: the next call is refused
	return v.trialAnswer(*end), nil
}

// refusedBy is the refusal of a job by its harness.
func refusedBy(r trial.Result) error {
	hint := schemaHint
	for _, p := range r.Problems {
		if p.Hint != "" {
			hint = p.Hint
			break
		}
	}
	return refusef(hint, "%s", problemsText(r.Problems, r.Reason))
}

// problemsText are the first problems in one line.
func problemsText(problems []trial.Problem, reason string) string {
	var all []string
	for _, p := range problems {
		rule := p.Rule
		if p.Field != "" && !strings.HasPrefix(rule, p.Field) {
			rule = p.Field + ": " + rule
		}
		all = append(all, rule)
	}
	if len(all) == 0 {
		return reason
	}
	return text.First(all, 5, "; ")
}

// maxDetail bounds the harness's own result in an answer, in bytes.
const maxDetail = 32 << 10

// tried is a trial as an answer has it.
type tried struct {
	ID       string          `json:"id"`
	Kind     string          `json:"kind"`
	Verdict  trial.Verdict   `json:"verdict"`
	Reason   string          `json:"reason"`
	ExitCode int             `json:"exit_code"`
	Score    *float64        `json:"score"`
	Runs     []trial.RunRef  `json:"runs"`
	Problems []trial.Problem `json:"problems"`
	Files    []file          `json:"files"`
	// ProblemsTotal and FilesTotal count all; the lists have the first ones.
	ProblemsTotal   int             `json:"problems_total"`
	FilesTotal      int             `json:"files_total"`
	Usage           trial.Usage     `json:"usage"`
	Detail          json.RawMessage `json:"detail,omitempty"`
	DetailTruncated bool            `json:"detail_truncated"`
	More            []string        `json:"more"`

	brief string // what a contract or a solution gave
}

// gateKind is the kind of the trials of gates.
const gateKind = "gate"

// briefly is what a contract or a solution gave, for models that read no data.
func briefly(r trial.Result) string {
	var b strings.Builder
	if r.Job.Kind == evaluate.Kind {
		var e evaluate.Result
		if json.Unmarshal(r.Detail, &e) != nil || e.Run == nil {
			return ""
		}
		traceback := ""
		if e.ErrorTraceback != nil {
			traceback = *e.ErrorTraceback
		}
		cut := e.Run.OutputTruncated
		printed(&b, traceback, e.Run.ID, stream{"stdout", e.Stdout, int64(len(e.Stdout)), cut}, stream{"stderr", e.Stderr, int64(len(e.Stderr)), cut})
		return b.String()
	}
	var o contract.Outcome
	if r.Job.Kind != contract.Kind || json.Unmarshal(r.Detail, &o) != nil {
		return ""
	}
	if o.Error != "" {
		fmt.Fprintf(&b, "%s\n", text.Short(o.Error, 1000))
	}
	if o.Call != nil && o.Success {
		value, err := json.Marshal(o.Call.Value)
		if err != nil {
			return "" // it was decoded
		}
		fmt.Fprintf(&b, "value: %s\n", whole(string(value[:min(len(value), maxText)])))
		if len(value) > maxText {
			fmt.Fprintf(&b, "[truncated: the whole value is in the resource evalbox://trials/%s]\n", r.Job.ID)
		}
		return b.String()
	}
	printed(&b, "", o.Evidence.RunID,
		stream{"stdout", o.Stdout, o.StdoutBytes, o.Truncated}, stream{"stderr", o.Stderr, o.StderrBytes, o.Truncated})
	return b.String()
}

func (v *server) trialAnswer(r trial.Result) answer {
	t := tried{
		ID: r.Job.ID, Kind: r.Job.Kind, Verdict: r.Verdict, Reason: r.Reason, ExitCode: r.ExitCode, Score: r.Score,
		Runs: r.Runs[:min(len(r.Runs), maxFiles)], Problems: r.Problems[:min(len(r.Problems), maxFiles)],
		Files: []file{}, ProblemsTotal: len(r.Problems), FilesTotal: len(r.Files), Usage: r.Usage,
		Detail: r.Detail, DetailTruncated: len(r.Detail) > maxDetail, More: []string{"evalbox://trials/" + r.Job.ID},
	}
	if t.DetailTruncated {
		t.Detail = nil
	}
	for _, f := range r.Files[:min(len(r.Files), maxFiles)] {
		t.Files = append(t.Files, file{f.Path, f.Size, f.SHA256})
	}
	for _, run := range t.Runs {
		if fsx.IsDir(v.store.RecordDir(run.ID)) { // a gate keeps evidence in place of records
			t.More = append(t.More, "get_result with id "+run.ID)
		}
	}
	if r.Job.Kind == gateKind {
		t.More = append(t.More, "read_file with id "+t.ID+" and a path such as evidence/run_log.txt")
	}
	t.brief = briefly(r)
	return answer{t, t.text()}
}

func (t tried) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", t.Kind, t.Verdict)
	if t.Reason != "" {
		fmt.Fprintf(&b, " (%s)", t.Reason)
	}
	fmt.Fprintf(&b, " · trial %s\n", t.ID)
	if t.Score != nil {
		fmt.Fprintf(&b, "score %s\n", text.Number(*t.Score))
	}
	if t.ProblemsTotal > 0 {
		fmt.Fprintf(&b, "%s\n", problemsText(t.Problems, ""))
	}
	b.WriteString(t.brief)
	for _, more := range t.More {
		fmt.Fprintf(&b, "more: %s\n", more)
	}
	if t.DetailTruncated {
		fmt.Fprintf(&b, "[truncated: the whole result is the resource evalbox://trials/%s]\n", t.ID)
	}
	return terminal.Text(b.String())
}
