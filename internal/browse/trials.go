package browse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

const (
	// trialsAge is how old the list of the trials may be.
	trialsAge = 2 * time.Second
	// maxBatches and maxJobs bound the rows of a page, maxEvents the events of a job.
	maxBatches, maxJobs, maxEvents = 200, 1000, 500
	maxDetail                      = 64 << 10
)

// trials is the log of trials, read at most each [trialsAge].
type trials struct {
	log    *trial.Log
	cached cached[jobList]
}

// jobList is every job with its last result.
type jobList struct {
	done []trial.Result // in the order of their results
	open []trial.Job
}

func (t *trials) list() (jobList, error) {
	if t.log == nil {
		return jobList{}, nil
	}
	return t.cached.get(trialsAge, func() (l jobList, err error) {
		at := map[string]int{}
		var errs []error
		for r, err := range t.log.List() {
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if i, again := at[r.Job.ID]; again {
				l.done[i] = r
				continue
			}
			at[r.Job.ID] = len(l.done)
			l.done = append(l.done, r)
		}
		l.open, err = t.log.Unfinished()
		return l, errors.Join(append(errs, err)...)
	})
}

// batch sums up the jobs with one parent, or one job without a parent.
type batch struct {
	ID, Kind, Name, Task                              string
	Single                                            bool
	Jobs, Open, Passed, Failed, Refused, Inconclusive int
	Began                                             time.Time
	Seconds                                           float64

	done []trial.Result
}

// URL is the page of the batch, or of the job.
func (b batch) URL() string {
	if b.Single {
		return "/trials/" + b.ID
	}
	return "/batches/" + b.ID
}

// BestScore is the score of the first rank; empty without one.
func (b batch) BestScore() string {
	ranked, ranks := evaluate.RankTrials(b.done)
	if len(ranks) == 0 || ranks[0] == 0 {
		return ""
	}
	return scoreOf(ranked[0].Score)
}

// scoreOf is a score for a table; empty without one. The page of a run has all of its digits.
func scoreOf(score *float64) string {
	if score == nil {
		return ""
	}
	return short(*score)
}

// trialsView is the list of batches.
type trialsView struct {
	Batches []*batch
	Total   int
	Problem string
}

func (s *Server) trialsView() trialsView {
	all, err := s.trials.list()
	v := trialsView{Batches: batchesOf(all)}
	if v.Total = len(v.Batches); v.Total > maxBatches {
		v.Batches = v.Batches[:maxBatches]
	}
	if err != nil {
		v.Problem = text.Fit(err.Error(), 1000)
	}
	return v
}

// batchesOf groups jobs by their parents, the newest first.
func batchesOf(all jobList) (batches []*batch) {
	known := map[string]*batch{}
	of := func(job trial.Job) *batch {
		id := cmp.Or(job.Parent, job.ID)
		b := known[id]
		if b == nil {
			b = &batch{ID: id, Kind: job.Kind, Name: job.Name, Single: job.Parent == ""}
			known[id] = b
			batches = append(batches, b)
		}
		b.Jobs++
		return b
	}
	for _, r := range all.done {
		b := of(r.Job)
		switch r.Verdict {
		case trial.Passed:
			b.Passed++
		case trial.Failed:
			b.Failed++
		case trial.Refused:
			b.Refused++
		case trial.Inconclusive:
			b.Inconclusive++
		}
		if b.Began.IsZero() || r.Started.Before(b.Began) {
			b.Began = r.Started
		}
		if r.Ranking != nil {
			b.Task = r.Ranking.Task
		}
		b.done = append(b.done, r)
		b.Seconds += r.Usage.WallSeconds
	}
	for _, job := range all.open {
		of(job).Open++
	}
	slices.SortStableFunc(batches, func(a, b *batch) int {
		return cmp.Or(cmp.Compare(min(b.Open, 1), min(a.Open, 1)), b.Began.Compare(a.Began), strings.Compare(b.ID, a.ID))
	})
	return batches
}

func (s *Server) trialsPage(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "trials", page{Title: "Trials", Nav: "trials", Live: "/trials/live", Body: s.trialsView()})
}

func (s *Server) trialsLive(w http.ResponseWriter, r *http.Request) {
	s.stream(w, r, func() ([]update, bool) {
		return []update{updateOf("trials-body", "trials-rows", s.trialsView())}, false
	})
}

// batchView is a leaderboard.
type batchView struct {
	ID, Task, Direction        string
	Rows                       []standing
	Left                       int
	Open, Done, Passed, Failed int
}

// standing is a job in a leaderboard.
type standing struct {
	Rank    string
	Job     trial.Job
	Verdict string
	Reason  string
	Score   string
	Seconds float64
	// Run is its first run; empty if there is none.
	Run string
	// Now is what an unfinished job does.
	Now string
}

// Class is how a job is marked.
func (s standing) Class() string {
	return cmp.Or(map[string]string{"passed": "good", "failed": "bad", "refused": "bad", "": "live"}[s.Verdict], "odd")
}

// Duration is the time of its runs.
func (s standing) Duration() string {
	if s.Verdict == "" {
		return ""
	}
	return text.Seconds(s.Seconds)
}

func (s *Server) batchView(id string) batchView {
	all, _ := s.trials.list()
	v := batchView{ID: id}
	var done []trial.Result
	for _, r := range all.done {
		if r.Job.Parent == id {
			done = append(done, r)
		}
	}
	done, ranks := evaluate.RankTrials(done)
	for i, r := range done {
		if r.Ranking != nil {
			v.Task, v.Direction = r.Ranking.Task, r.Ranking.Direction
		}
		row := standing{Job: r.Job, Verdict: string(r.Verdict), Reason: text.Fit(r.Reason, 200), Score: scoreOf(r.Score), Seconds: r.Usage.WallSeconds}
		if ranks[i] > 0 {
			row.Rank = strconv.Itoa(ranks[i])
		}
		if len(r.Runs) > 0 && policy.CheckName("id", r.Runs[0].ID) == nil {
			row.Run = r.Runs[0].ID
		}
		switch v.Done++; r.Verdict {
		case trial.Passed:
			v.Passed++
		case trial.Failed, trial.Refused:
			v.Failed++
		case trial.Inconclusive:
		}
		v.Rows = append(v.Rows, row)
	}
	for _, job := range all.open {
		if job.Parent == id {
			v.Open++
			v.Rows = append(v.Rows, standing{Job: job, Now: s.lastEvent(job.ID)})
		}
	}
	if v.Left = max(0, len(v.Rows)-maxJobs); v.Left > 0 {
		v.Rows = v.Rows[:maxJobs]
	}
	return v
}

// lastEvent is what a job did last, in words.
func (s *Server) lastEvent(id string) string {
	last := trial.Event{}
	for e, err := range s.trials.log.Events(id) {
		if err != nil {
			break
		}
		last = e
	}
	if last.Kind == "" {
		return "has not started"
	}
	return text.Fit(strings.TrimSpace(string(last.Kind)+" "+last.Role+" "+last.Text), 200)
}

// named is the ID that a request names, and whether it can be one.
func (s *Server) named(w http.ResponseWriter, r *http.Request) (string, bool) {
	id := r.PathValue("id")
	if err := policy.CheckName("id", id); err != nil {
		s.missing(w, r, err.Error())
		return "", false
	}
	return id, true
}

func (s *Server) batchPage(w http.ResponseWriter, r *http.Request) {
	id, ok := s.named(w, r)
	if !ok {
		return
	}
	v := s.batchView(id)
	if len(v.Rows) == 0 {
		s.missing(w, r, "The log has no jobs of this batch.")
		return
	}
	s.show(w, r, http.StatusOK, "batch", page{Title: "Batch " + id, Nav: "trials", Live: "/batches/" + id + "/live", Body: v})
}

func (s *Server) batchLive(w http.ResponseWriter, r *http.Request) {
	id, ok := s.named(w, r)
	if !ok {
		return
	}
	s.stream(w, r, func() ([]update, bool) {
		v := s.batchView(id)
		return []update{updateOf("batch-count", "batch-count", v), updateOf("batch-body", "batch-rows", v)}, false
	})
}

// jobView is the page of a job.
type jobView struct {
	trial.Result
	Events []trial.Event
	// MoreEvents is the number of the first events, which are left out.
	MoreEvents   int
	Spec, Detail string
	Open         bool
}

// ScoreText is the score; empty without one.
func (v jobView) ScoreText() string { return scoreOf(v.Score) }

func (s *Server) jobPage(w http.ResponseWriter, r *http.Request) {
	id, ok := s.named(w, r)
	if !ok {
		return
	}
	if s.trials.log == nil {
		s.missing(w, r, "There is no log of trials.")
		return
	}
	res, err := s.trials.log.Get(id)
	if err != nil {
		s.missing(w, r, fsx.Cause(err).Error())
		return
	}
	v := jobView{Result: res, Spec: pretty(res.Job.Spec), Detail: pretty(res.Detail), Open: res.Started.IsZero()}
	for e, err := range s.trials.log.Events(id) {
		if err != nil {
			break
		}
		if v.Events = append(v.Events, e); len(v.Events) > maxEvents {
			v.Events, v.MoreEvents = v.Events[1:], v.MoreEvents+1
		}
	}
	v.Runs = slices.DeleteFunc(slices.Clone(res.Runs), func(ref trial.RunRef) bool { return policy.CheckName("id", ref.ID) != nil })
	s.show(w, r, http.StatusOK, "job", page{Title: "Job " + cmp.Or(res.Job.Name, id), Nav: "trials", Body: v})
}

// pretty is the beginning of a JSON document, for people.
func pretty(document json.RawMessage) string {
	if len(document) == 0 {
		return ""
	}
	var value any
	if json.Unmarshal(document, &value) != nil {
		return text.Short(string(document), maxDetail)
	}
	indented, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return ""
	}
	return text.Short(string(indented), maxDetail)
}

// queueView is who has GPUs, and who waits.
type queueView struct {
	gpu.Listing
	Problem string
	Waiting []standing
	Running []*row
}

func (s *Server) queueView(ctx context.Context) queueView {
	var v queueView
	if s.GPUs != nil {
		var err error
		if v.Listing, err = s.GPUs(ctx); err != nil {
			v.Problem = text.Fit(err.Error(), 500)
		}
	}
	all, _ := s.trials.list()
	for _, job := range all.open[:min(len(all.open), maxJobs)] {
		v.Waiting = append(v.Waiting, standing{Job: job, Now: s.lastEvent(job.ID)})
	}
	s.index.current(patience)
	runs, _ := s.index.list()
	for _, each := range runs {
		if each.State == "running" && len(v.Running) < maxJobs {
			v.Running = append(v.Running, each)
		}
	}
	return v
}

func (s *Server) queuePage(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "queue", page{Title: "GPUs and queue", Nav: "queue", Live: "/queue/live", Body: s.queueView(r.Context())})
}

func (s *Server) queueLive(w http.ResponseWriter, r *http.Request) {
	s.stream(w, r, func() ([]update, bool) {
		return []update{updateOf("queue-body", "queue-body", s.queueView(r.Context()))}, false
	})
}
