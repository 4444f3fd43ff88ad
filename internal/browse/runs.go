package browse

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/record"
)

// perPage is the number of runs of a page.
const perPage = 100

// query is the filter of a list of runs as it was typed, and its page.
type query struct {
	Status, Name, Label, Since string
	Page                       int
	filter                     record.Filter
	// Problem says why the filter cannot be used; the list then has all runs.
	Problem string
}

func (s *Server) readQuery(values url.Values) query {
	q := query{Status: values.Get("status"), Name: values.Get("name"), Label: values.Get("label"), Since: values.Get("since"), Page: 1}
	if n, err := strconv.Atoi(values.Get("page")); err == nil && n > 0 && n < 1_000_000 {
		q.Page = n
	}
	q.filter = record.Filter{Name: q.Name, Labels: strings.Fields(q.Label)}
	if q.Status != "" {
		q.filter.Status = []string{q.Status}
	}
	err := q.filter.Check()
	if err == nil && q.Since != "" {
		q.filter.Since, err = s.Since(q.Since)
	}
	if err != nil {
		q.Problem, q.filter = text.Fit(err.Error(), 300), record.Filter{}
	}
	return q
}

// URL is the list with the same filter at another page.
func (q query) URL(page int) string {
	v := url.Values{}
	for name, value := range map[string]string{"status": q.Status, "name": q.Name, "label": q.Label, "since": q.Since} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if page > 1 {
		v.Set("page", strconv.Itoa(page))
	}
	if len(v) == 0 {
		return "/"
	}
	return "/?" + v.Encode()
}

// runsView is the list of runs.
type runsView struct {
	Query    query
	Statuses []string
	Runs     []*row
	// Total are the runs that match, and All those that there are.
	Total, All, Running int
	Pages               int
	Broken              string
	Loading             bool
	Done, ToDo          int64
}

func (v runsView) Before() string { return v.Query.URL(v.Query.Page - 1) }
func (v runsView) After() string  { return v.Query.URL(v.Query.Page + 1) }

// Counted says how many runs there are.
func (v runsView) Counted() string {
	all := text.Count(v.All, "run")
	if v.Total != v.All {
		all = strconv.Itoa(v.Total) + " of " + all
	}
	return all
}

func (s *Server) runsView(q query) runsView {
	s.index.current(patience)
	v := runsView{Query: q, Statuses: record.StatusNames()}
	all, broken := s.index.list()
	if broken != nil {
		v.Broken = text.Fit(broken.Error(), 2000)
	}
	v.Done, v.ToDo, v.Loading = s.index.progress()
	v.All = len(all)
	from := (q.Page - 1) * perPage
	for _, each := range all {
		if each.State == record.Running {
			v.Running++
		}
		if !q.filter.Matches(each.Record, each.Well) {
			continue
		}
		if v.Total >= from && v.Total < from+perPage {
			v.Runs = append(v.Runs, each)
		}
		v.Total++
	}
	v.Pages = max(1, (v.Total+perPage-1)/perPage)
	return v
}

func (s *Server) runsPage(w http.ResponseWriter, r *http.Request) {
	q := s.readQuery(r.URL.Query())
	live := "/live"
	if r.URL.RawQuery != "" {
		live += "?" + r.URL.RawQuery
	}
	s.show(w, r, http.StatusOK, "runs", page{Title: "Runs", Nav: "runs", Live: live, Body: s.runsView(q)})
}

func (s *Server) runsLive(w http.ResponseWriter, r *http.Request) {
	q := s.readQuery(r.URL.Query())
	seen := int64(-1)
	s.stream(w, r, func() ([]update, bool) {
		s.index.current(patience)
		// The durations of running programs change as well.
		now, live := s.index.state()
		if now == seen && !live {
			return nil, false
		}
		seen = now
		v := s.runsView(q)
		return []update{updateOf("runs-count", "runs-count", v), updateOf("runs-body", "runs-rows", v)}, false
	})
}

// Class is how a run is marked: good, bad, live or odd.
func (r *row) Class() string { return classOf(r.Record, r.Well) }

func classOf(each record.Record, well bool) string {
	switch {
	case each.State == record.Running:
		return "live"
	case each.Result == nil:
		return "odd"
	case well:
		return "good"
	}
	return "bad"
}

// Began is the time at which the program started, or else the run.
func (r *row) Began() time.Time {
	if r.Result != nil {
		if at, err := time.Parse(time.RFC3339Nano, r.Result.StartedAt); err == nil {
			return at
		}
	}
	return r.Created
}

// Score is the score; empty without one.
func (r *row) Score() string {
	if r.Result == nil {
		return ""
	}
	return scoreOf(r.Result.Score)
}

// Duration is the time of the program; of one that runs, the time since the run was created.
func (r *row) Duration() string {
	switch {
	case r.Result != nil:
		return text.Seconds(r.Result.DurationSeconds)
	case r.State == record.Running:
		return elapsed(r.Created)
	}
	return ""
}

// elapsed is the time since a moment, in whole seconds.
func elapsed(since time.Time) string { return max(0, time.Since(since)).Truncate(time.Second).String() }

// Seconds sorts durations.
func (r *row) Seconds() float64 {
	if r.Result == nil {
		return 0
	}
	return r.Result.DurationSeconds
}

// Command is the command line, or the name of the script with its arguments.
func (r *row) Command() string { return text.Fit(strings.Join(r.Spec.Job.Command, " "), 200) }
