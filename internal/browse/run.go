package browse

import (
	"fmt"
	"html/template"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/record"
)

// runView is the page of a run.
type runView struct {
	record.Record
	Ending, Class string
	// StopAsked says that somebody asked the run to end.
	StopAsked bool
	Facts     []fact
	Limits    []limit
	Logs      []logView
	Metrics   metricsView
	Outputs   []result.Output
	// MoreOutputs is the number of outputs that the page leaves out.
	MoreOutputs int
	Job         string
	Again       again
	CSRF        string
	Control     bool
}

// maxShown bounds the outputs of a page.
const maxShown = 500

// fact is a name and a value.
type fact struct{ Name, Value string }

// limit is what bounded a run, and how much of it the run used.
type limit struct{ Name, Limit, Used string }

// load reads the run that a request names, and answers if there is none.
func (s *Server) load(w http.ResponseWriter, r *http.Request) (record.Record, bool) {
	each, err := s.loadRun(r.PathValue("id"))
	if err != nil {
		s.missing(w, r, err.Error())
	}
	return each, err == nil
}

func (s *Server) loadRun(id string) (record.Record, error) {
	if err := policy.CheckName("id", id); err != nil {
		return record.Record{}, err
	}
	return s.Store.Load(id)
}

func (s *Server) runPage(w http.ResponseWriter, r *http.Request) {
	each, ok := s.load(w, r)
	if !ok {
		return
	}
	v := s.runView(each)
	v.Logs = []logView{logStart(each, record.StdoutFile), logStart(each, record.StderrFile)}
	v.Metrics = readMetrics(each.Dir)
	if v.Control = s.Control != nil; v.Control {
		v.CSRF = s.guard.csrf(r)
	}
	p := page{Title: "Run " + record.ShortID(each.ID), Nav: "runs", Body: v}
	if each.State == record.Running {
		p.Live = "/runs/" + each.ID + "/live"
	}
	s.show(w, r, http.StatusOK, "run", p)
}

// runView describes a run without its streams and measurements.
func (s *Server) runView(each record.Record) runView {
	c := contract.OfRecord(each)
	v := runView{
		Record: each, Ending: render.RecordStatus(each, c), Class: classOf(each, c.Succeeded(each)),
		Facts: factsOf(each, c), Job: each.Spec.Job.Labels[jobLabel], Again: againOf(each),
	}
	v.StopAsked, _ = s.Store.StopRequested(each.ID)
	if policy.CheckName("id", v.Job) != nil {
		v.Job = ""
	}
	if res := each.Result; res != nil {
		v.Limits = limitsOf(*res)
		v.Outputs = res.Outputs[:min(len(res.Outputs), maxShown)]
		v.MoreOutputs = len(res.Outputs) - len(v.Outputs)
	}
	return v
}

// jobLabel is the label with the job of a run; see [trial.Job.Labels].
const jobLabel = "trial.id"

func factsOf(each record.Record, c *contract.Recorded) (facts []fact) {
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, fact{name, text.Fit(value, 500)})
		}
	}
	job, res := each.Spec.Job, each.Result
	add("Name", job.Name)
	add("ID", each.ID)
	add("Labels", strings.ReplaceAll(render.Labels(job.Labels), ",", ", "))
	add("Command", strings.Join(c.Command(each), " "))
	add("Script", each.Script())
	add("Input", job.Input)
	add("Image", strings.TrimSpace(each.Spec.Class.Image.Reference+" "+each.Spec.Class.Image.ID))
	add("Created", each.Created.Local().Format(time.DateTime))
	if res != nil {
		if res.Score != nil {
			add("Score", strings.TrimSpace(text.Number(*res.Score)+map[bool]string{true: " (the last one of a program that did not end by itself)"}[res.ScoreUnfinished]))
		}
		if res.Fault != result.FaultNone {
			add("Fault", res.Fault.String())
		}
		if by := res.StoppedBy; by != nil {
			add("Stop rule", by.Rule+": "+by.Reason)
		}
		add("Overhead", text.Seconds(res.SetupSeconds+res.TeardownSeconds))
		add("Isolation", res.Enforced.Isolation.Grade)
		add("User", res.Enforced.User)
		if n := res.Network; n != nil {
			add("Network", fmt.Sprintf("level %s: %s, %d refused", n.Level, text.Count(int(n.Requests), "request"), n.Refused))
		} else {
			add("Network", res.Enforced.Network)
		}
		add("GPUs", strings.Join(res.Enforced.GPUs, ", "))
	}
	add("Record", each.Dir)
	return facts
}

func limitsOf(res result.Result) []limit {
	e := res.Enforced
	used := func(there bool, text string) string {
		if there {
			return text
		}
		return ""
	}
	measured := res.Resources.Source != ""
	m := result.Metrics{}
	if res.Metrics != nil {
		m = *res.Metrics
	}
	var outputs int64
	for _, o := range res.Outputs {
		outputs += o.SizeBytes
	}
	return []limit{
		{"Time", text.Seconds(e.TimeoutSeconds), text.Seconds(res.DurationSeconds)},
		{"Processor time", fmt.Sprintf("%g processors", e.CPUs), used(measured, text.Seconds(res.Resources.CPUSeconds))},
		{"Memory", text.Size(e.MemoryBytes), used(measured, text.Size(res.Resources.PeakMemoryBytes))},
		{"Processes", fmt.Sprint(e.PIDs), used(m.PeakProcesses > 0, fmt.Sprint(m.PeakProcesses))},
		{"Disk", text.Size(e.DiskBytes), text.Size(max(outputs, m.PeakDiskBytes))},
		{"Output", text.Size(e.StreamFileBytes), text.Size(res.StdoutBytes + res.StderrBytes)},
	}
}

func (s *Server) runLive(w http.ResponseWriter, r *http.Request) {
	each, ok := s.load(w, r)
	if !ok {
		return
	}
	csrf := ""
	if s.Control != nil {
		csrf = s.guard.csrf(r)
	}
	logs := []*follower{{path: each.StdoutPath(), target: "log-stdout"}, {path: each.StderrPath(), target: "log-stderr"}}
	measured := int64(-1)
	s.stream(w, r, func() (updates []update, last bool) {
		// First the state, then the rest: what comes between the two is not lost.
		now, err := s.loadRun(each.ID)
		if err != nil {
			return []update{{Target: "run-status", HTML: template.HTMLEscapeString(err.Error())}}, true
		}
		last = now.State != record.Running
		for _, log := range logs {
			updates = append(updates, log.updates(last)...)
		}
		v := s.runView(now)
		v.CSRF, v.Control = csrf, s.Control != nil
		updates = append(updates, updateOf("run-status", "run-status", v))
		if size := sizeOf(filepath.Join(now.Dir, metrics.File)); size != measured || last {
			measured = size
			v.Metrics = readMetrics(now.Dir)
			updates = append(updates, updateOf("run-metrics", "run-metrics", v.Metrics))
		}
		if last {
			updates = append(updates, updateOf("run-end", "run-end", v))
		}
		return updates, last
	})
}

// sizeOf is the size of a file; 0 if there is none.
func sizeOf(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// Elapsed is the time of a run so far.
func (v runView) Elapsed() string {
	if v.Result != nil {
		return text.Seconds(v.Result.DurationSeconds)
	}
	return elapsed(v.Created)
}

// Running and Lost are the states of a run without a result.
func (v runView) Running() bool { return v.State == record.Running }
func (v runView) Lost() bool    { return v.State == record.Lost }

// Unreadable reports whether the record is damaged, so that nobody can finish the run.
func (v runView) Unreadable() bool { return v.State == record.Unreadable }

// Traceback is how the program failed, as it printed it; empty if it did not.
func (v runView) Traceback() string {
	switch res := v.Result; {
	case res == nil:
		return ""
	case res.ErrorTraceback != nil:
		return text.Short(*res.ErrorTraceback, 64<<10)
	default:
		return text.Short(res.ErrorSummary, 64<<10)
	}
}
