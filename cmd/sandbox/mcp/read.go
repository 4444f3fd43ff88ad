package mcp

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Bounds of a page, in bytes, and of a list.
const (
	defaultPage = 16 << 10
	maxPage     = 256 << 10
	defaultList = 20
	maxList     = 200
)

func (v *server) addReadTools() {
	id := typed("string", "ID of a run.")
	offset := number("integer", "First byte; 0 if it is left out.", 0, 1<<53)
	limit := number("integer", "Bytes at most.", 1, maxPage)
	v.tool(&sdk.Tool{
		Name: "get_result", Title: "Get a result", Annotations: readOnly,
		Description: "Get the result of a run or of a trial by its ID.",
		InputSchema: object([]string{"id"}, map[string]any{"id": typed("string", "ID of a run or of a trial.")}),
	}, v.getResult)
	v.tool(&sdk.Tool{
		Name: "read_output", Title: "Read the output of a run", Annotations: readOnly,
		Description: "Read stdout or stderr of a run, a page at a time, also while it runs. Go on at next_offset until eof is true.",
		InputSchema: object([]string{"id"}, map[string]any{
			"id": id, "stream": map[string]any{"type": "string", "enum": []string{"stdout", "stderr"}, "description": "stdout if it is left out."},
			"offset": offset, "limit": limit,
		}),
	}, v.readOutput)
	v.tool(&sdk.Tool{
		Name: "read_file", Title: "Read a file of a run", Annotations: readOnly,
		Description: "Read a file that a run left in ./final, or of the evidence of a gate by the ID of its trial, a page at a time: text, or base64 for other bytes.",
		InputSchema: object([]string{"id", "path"}, map[string]any{
			"id": id, "path": typed("string", "Path in ./final, as the outputs of the result have it."), "offset": offset, "limit": limit,
		}),
	}, v.readFile)
	v.tool(&sdk.Tool{
		Name: "list_runs", Title: "List the runs", Annotations: readOnly,
		Description: "List the runs of this session, newest first, and what is left of its quotas.",
		InputSchema: object(nil, map[string]any{
			"limit":  number("integer", "Runs at most; 20 if it is left out.", 1, maxList),
			"status": typed("string", "Only runs with this status, such as exited, timed_out or running."),
			"name":   typed("string", "Only runs with this name."),
		}),
	}, v.listRuns)
}

type readArgs struct {
	ID     string `json:"id,omitempty"`
	Stream string `json:"stream,omitempty"`
	Path   string `json:"path,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Limit  int64  `json:"limit,omitempty"`
	Status string `json:"status,omitempty"`
	Name   string `json:"name,omitempty"`
}

// page checks the bounds of a page, and completes its limit.
func (a *readArgs) page() error {
	a.Limit = cmp.Or(a.Limit, defaultPage)
	switch {
	case a.Offset < 0:
		return &policy.FieldError{Field: "offset", Value: fmt.Sprint(a.Offset), Rule: "must not be negative"}
	case a.Limit < 1 || a.Limit > maxPage:
		return &policy.FieldError{Field: "limit", Value: fmt.Sprint(a.Limit), Rule: fmt.Sprintf("must be between 1 and %d", maxPage)}
	}
	return nil
}

// load reads the record of a run that the client may see. The ID is whole.
func (v *server) load(id string) (record.Record, error) {
	if err := policy.CheckName("id", id); err != nil {
		return record.Record{}, err
	}
	if !v.allRuns && !v.box.owns(id) {
		return record.Record{}, fmt.Errorf("run %q: %w in this session", id, record.ErrNoRecord)
	}
	if !fsx.IsDir(v.store.RecordDir(id)) {
		return record.Record{}, fmt.Errorf("run %q: %w", id, record.ErrNoRecord)
	}
	return v.store.Load(id)
}

// trial reads the result of a trial that the client may see.
func (v *server) trial(id string) (trial.Result, error) {
	r, err := v.log.Get(id)
	if err == nil && !v.allRuns && r.Job.Parent != v.box.session {
		err = trial.ErrNoJob
	}
	if errors.Is(err, trial.ErrNoJob) {
		err = fmt.Errorf("run or trial %q: %w in this session", id, record.ErrNoRecord)
	}
	return r, err
}

func (v *server) getResult(_ context.Context, c *call) (answer, error) {
	var args readArgs
	if err := decode(c.args, &args); err != nil {
		return answer{}, err
	}
	r, err := v.load(args.ID)
	if errors.Is(err, record.ErrNoRecord) {
		t, err := v.trial(args.ID)
		if err != nil {
			return answer{}, err
		}
		return v.trialAnswer(t), nil
	}
	if err != nil {
		return answer{}, err
	}
	if r.Result == nil {
		return answer{map[string]any{"id": r.ID, "status": string(r.State)}, fmt.Sprintf("run %s has no result: it is %s\n", r.ID, r.State)}, nil
	}
	return runAnswer(r.Result), nil
}

// page is a part of a stream or of a file.
type page struct {
	ID   string `json:"id"`
	Path string `json:"path,omitempty"`
	// Stream is stdout or stderr.
	Stream     string `json:"stream,omitempty"`
	Offset     int64  `json:"offset"`
	NextOffset int64  `json:"next_offset"`
	Total      int64  `json:"total"`
	EOF        bool   `json:"eof"`
	// Written counts what the program wrote. It is more than Total if the record has a part of it;
	// -1 while the program runs.
	Written  *int64 `json:"written,omitempty"`
	Encoding string `json:"encoding"`
	Content  string `json:"content"`
}

func (v *server) readOutput(_ context.Context, c *call) (answer, error) {
	var args readArgs
	err := decode(c.args, &args)
	if err == nil {
		err = args.page()
	}
	name := map[string]string{"": record.StdoutFile, "stdout": record.StdoutFile, "stderr": record.StderrFile}[args.Stream]
	if err == nil && name == "" {
		err = &policy.FieldError{Field: "stream", Value: text.Quote(args.Stream, 80), Rule: "must be stdout or stderr"}
	}
	if err != nil {
		return answer{}, err
	}
	r, err := v.load(args.ID)
	if err != nil {
		return answer{}, err
	}
	written := int64(-1)
	if r.Result != nil {
		written = r.Result.StdoutBytes
		if name == record.StderrFile {
			written = r.Result.StderrBytes
		}
	}
	p := page{ID: r.ID, Stream: cmp.Or(args.Stream, "stdout"), Written: &written}
	if err := p.read(r.Dir, name, args, true); err != nil && !(errors.Is(err, os.ErrNotExist)) {
		return answer{}, err
	}
	p.EOF = p.NextOffset >= p.Total && r.State != record.Running
	return p.answer(), nil
}

func (v *server) readFile(_ context.Context, c *call) (answer, error) {
	var args readArgs
	err := decode(c.args, &args)
	if err == nil {
		err = args.page()
	}
	if err != nil {
		return answer{}, err
	}
	dir, name, err := v.file(args.ID, args.Path)
	if err != nil {
		return answer{}, err
	}
	p := page{ID: args.ID, Path: args.Path}
	if err := p.read(dir, name, args, false); err != nil {
		return answer{}, refusef(outputHint, "path %s: %v", text.Quote(args.Path, 200), fsx.Cause(err))
	}
	return p.answer(), nil
}

// file finds a file that a run left, or a file of the evidence of a gate.
func (v *server) file(id, asked string) (dir, name string, err error) {
	r, err := v.load(id)
	if err == nil {
		return v.output(r, asked)
	}
	t, trialErr := v.trial(id)
	if trialErr != nil || t.Job.Kind != gateKind {
		return "", "", err
	}
	var d document
	if err := json.Unmarshal(t.Job.Spec, &d); err != nil {
		return "", "", err
	}
	dir = d.text("out")
	if name = filepath.FromSlash(asked); dir == "" || v.root.broken(dir) != "" || !filepath.IsLocal(name) {
		return "", "", refusef("such as evidence/run_log.txt", "path %s: is not a path in the directory of gate %s", text.Quote(asked, 200), id)
	}
	return dir, name, nil
}

const outputHint = "the outputs of the result have the paths of all files"

// output finds a file that a run left: the directory of its ./final, and the name in it. Only files
// that the result lists can be read.
func (v *server) output(r record.Record, asked string) (dir, name string, err error) {
	if r.Result == nil {
		return "", "", refusef("wait for its end", "run %s: has no result: it is %s", r.ID, r.State)
	}
	i := slices.IndexFunc(r.Result.Outputs, func(o result.Output) bool { return o.Path == asked })
	if rest, ok := strings.CutPrefix(asked, "final/"); i < 0 && ok { // as the text of a result has it
		i = slices.IndexFunc(r.Result.Outputs, func(o result.Output) bool { return o.Path == rest })
	}
	if i < 0 {
		return "", "", refusef(outputHint, "path %s: is not an output of run %s", text.Quote(asked, 200), r.ID)
	}
	o := r.Result.Outputs[i]
	name = o.Path
	if o.PathBase64 != "" {
		raw, err := base64.StdEncoding.DecodeString(o.PathBase64)
		if err != nil {
			return "", "", fmt.Errorf("record %s: %w", r.ID, err)
		}
		name = string(raw)
	}
	dir = r.OutputDir()
	if !fsx.Within(dir, r.Dir) && v.root.broken(dir) != "" {
		return "", "", refusef("", "run %s: its ./final is not below the root of this server", r.ID)
	}
	return dir, filepath.FromSlash(name), nil
}

// read reads a page of a file. No link on the way is followed.
func (p *page) read(dir, name string, args readArgs, stream bool) error {
	root, err := fsx.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	file, info, err := fsx.OpenBelow(root, name)
	if err != nil {
		return err
	}
	defer file.Close()
	p.Total, p.Offset = info.Size(), min(args.Offset, info.Size())
	content, err := io.ReadAll(io.NewSectionReader(file, p.Offset, min(args.Limit, p.Total-p.Offset)))
	if err != nil {
		return err
	}
	last := p.Offset+int64(len(content)) >= p.Total
	p.fill(content, last, stream)
	p.EOF = p.NextOffset >= p.Total
	return nil
}

// fill encodes a page. Text ends with a whole character, unless it is the last page. A stream is
// always text, whose invalid bytes are replaced.
func (p *page) fill(content []byte, last, stream bool) {
	shown := string(content)
	if cut := whole(shown); !last && cut != "" {
		shown = cut
	}
	p.NextOffset = p.Offset + int64(len(shown))
	switch valid := utf8.ValidString(shown) && !strings.ContainsRune(shown, 0); {
	case valid:
		p.Encoding, p.Content = "text", shown
	case stream:
		p.Encoding, p.Content = "text", strings.ToValidUTF8(shown, "\uFFFD")
	default:
		p.Encoding, p.Content = "base64", base64.StdEncoding.EncodeToString(content)
		p.NextOffset = p.Offset + int64(len(content))
	}
}

func (p page) answer() answer {
	end := "this is the end"
	if !p.EOF {
		end = fmt.Sprintf("go on at offset %d", p.NextOffset)
	}
	return answer{p, fmt.Sprintf("bytes %d to %d of %d, %s; %s\n%s", p.Offset, p.NextOffset, p.Total, p.Encoding, end, p.Content)}
}

// listed is a run in a list.
type listed struct {
	ID              string  `json:"id"`
	Name            string  `json:"name"`
	Status          string  `json:"status"`
	ExitCode        *int    `json:"exit_code"`
	DurationSeconds float64 `json:"duration_seconds"`
	Created         string  `json:"created"`
	Trial           string  `json:"trial,omitempty"`
}

func (v *server) listRuns(ctx context.Context, c *call) (answer, error) {
	var args readArgs
	if err := decode(c.args, &args); err != nil {
		return answer{}, err
	}
	args.Limit = cmp.Or(args.Limit, defaultList)
	if args.Limit < 1 || args.Limit > maxList {
		return answer{}, &policy.FieldError{Field: "limit", Value: fmt.Sprint(args.Limit), Rule: fmt.Sprintf("must be between 1 and %d", maxList)}
	}
	ids, err := v.visible()
	if err != nil {
		return answer{}, err
	}
	runs, more := []listed{}, false
	for _, id := range ids {
		r, err := v.store.Load(id)
		if ctx.Err() != nil {
			return answer{}, context.Cause(ctx)
		}
		if err != nil {
			continue // a gate removes the records of its runs
		}
		one := listing(r)
		if args.Status != "" && one.Status != args.Status || args.Name != "" && one.Name != args.Name {
			continue
		}
		if more = len(runs) == int(args.Limit); more {
			break
		}
		runs = append(runs, one)
	}
	var b strings.Builder
	for _, one := range runs {
		fmt.Fprintf(&b, "%s %s %s\n", one.ID, one.Status, text.Quote(one.Name, 80))
	}
	if more {
		b.WriteString("[truncated: there are more; ask for a higher limit]\n")
	}
	return answer{map[string]any{"runs": runs, "truncated": more, "quota": v.box.quota.usage()}, b.String()}, nil
}

// visible are the IDs of the runs that the client may see, newest first.
func (v *server) visible() ([]string, error) {
	if !v.allRuns {
		return v.box.newest(), nil
	}
	ids, err := v.store.IDs()
	slices.Sort(ids) // IDs sort by time
	slices.Reverse(ids)
	return ids, err
}

func listing(r record.Record) listed {
	one := listed{
		ID: r.ID, Name: r.Spec.Job.Name, Status: string(r.State), Created: r.Created.UTC().Format("2006-01-02T15:04:05Z"),
		Trial: r.Spec.Job.Labels["trial.id"],
	}
	if r.Result != nil {
		one.Status, one.ExitCode, one.DurationSeconds = r.Result.Status.String(), &r.Result.ExitCode, r.Result.DurationSeconds
	}
	return one
}
