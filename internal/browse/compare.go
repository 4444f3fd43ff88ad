package browse

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
)

// compareView is the difference of two runs.
type compareView struct {
	Runs     [2]*row
	Sections []section
}

// section is a part of a comparison.
type section struct {
	Title string
	Pairs []pair
	// Same is the number of values that are equal, and not shown.
	Same int
	// Left is the number of differences that are not shown.
	Left int
}

// pair is one value of two runs.
type pair struct{ Name, A, B string }

// maxPairs bounds the differences of a section.
const maxPairs = 300

func (s *Server) comparePage(w http.ResponseWriter, r *http.Request) {
	ids := r.URL.Query()["run"]
	if len(ids) != 2 {
		s.missing(w, r, "Choose two runs of the list to compare; "+text.Count(len(ids), "run")+" were chosen.")
		return
	}
	var runs [2]record.Record
	v := compareView{}
	for i, id := range ids {
		each, err := s.loadRun(id)
		if err == nil {
			v.Runs[i], err = newRow(s.Store, id)
		}
		if err != nil {
			s.missing(w, r, err.Error())
			return
		}
		runs[i] = each
	}
	v.Sections = compare(runs[0], runs[1])
	s.show(w, r, http.StatusOK, "compare", page{Title: "Comparison of two runs", Nav: "runs", Body: v})
}

// compare lists what differs between two runs.
func compare(a, b record.Record) []section {
	ra, rb := orEmpty(a.Result), orEmpty(b.Result)
	return []section{
		differences("Result", resultsOf(ra), resultsOf(rb)),
		differences("Metrics", metricsOf(ra), metricsOf(rb)),
		differences("Outputs", outputsOf(ra), outputsOf(rb)),
		differences("Settings", settingsOf(a), settingsOf(b)),
		differences("What was enforced", flatten(ra.Enforced), flatten(rb.Enforced)),
	}
}

func orEmpty(r *result.Result) result.Result {
	if r == nil {
		return result.Result{}
	}
	return *r
}

// differences are the values that are not equal, in the order of their names.
func differences(title string, a, b map[string]string) section {
	s := section{Title: title}
	names := slices.Sorted(maps.Keys(a))
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case a[name] == b[name]:
			s.Same++
		case len(s.Pairs) == maxPairs:
			s.Left++
		default:
			s.Pairs = append(s.Pairs, pair{text.Fit(name, 200), text.Fit(a[name], 500), text.Fit(b[name], 500)})
		}
	}
	return s
}

// settingsOf are the settings of a run: its plan without what is different for every run.
func settingsOf(r record.Record) map[string]string {
	flat := flatten(r.Spec)
	delete(flat, "job.run_id")
	return flat
}

func resultsOf(r result.Result) map[string]string {
	if r.Status == 0 {
		return map[string]string{"status": "no result yet"}
	}
	m := map[string]string{
		"status": r.Status.String(), "exit code": fmt.Sprint(r.ExitCode), "fault": r.Fault.String(), "explanation": r.Explanation,
		"duration": text.Seconds(r.DurationSeconds), "processor time": text.Seconds(r.Resources.CPUSeconds),
		"peak memory": text.Size(r.Resources.PeakMemoryBytes), "stdout": text.Size(r.StdoutBytes), "stderr": text.Size(r.StderrBytes),
		"error": string(r.ErrorReason), "warnings": strings.Join(r.Warnings, "; "),
	}
	if r.Score != nil {
		m["score"] = text.Number(*r.Score)
	}
	return m
}

func metricsOf(r result.Result) map[string]string {
	m := map[string]string{}
	if r.Metrics == nil {
		return m
	}
	value := func(name string, n *float64) {
		if n != nil {
			m[name] = short(*n)
		}
	}
	m["mean processors"], m["peak processors"] = short(r.Metrics.MeanCPUs), short(r.Metrics.PeakCPUs)
	for _, c := range r.Metrics.Custom {
		value(c.Name+", last", c.Last)
		value(c.Name+", least", c.Min)
		value(c.Name+", most", c.Max)
	}
	return m
}

func outputsOf(r result.Result) map[string]string {
	m := map[string]string{}
	for _, o := range r.Outputs {
		m[o.Path] = fmt.Sprintf("%s, sha256 %.12s", text.Size(o.SizeBytes), o.SHA256)
	}
	return m
}

// flatten turns a value into its parts by their paths, such as "job.timeout_seconds".
func flatten(value any) map[string]string {
	flat := map[string]string{}
	content, err := json.Marshal(value)
	var tree any
	if err == nil {
		err = json.Unmarshal(content, &tree)
	}
	if err != nil {
		return map[string]string{"": err.Error()}
	}
	flattenInto(flat, "", tree)
	return flat
}

func flattenInto(flat map[string]string, path string, value any) {
	below := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	switch v := value.(type) {
	case map[string]any:
		for name, each := range v {
			flattenInto(flat, below(name), each)
		}
	case []any:
		for i, each := range v {
			flattenInto(flat, below(fmt.Sprint(i)), each)
		}
	case nil:
	default:
		flat[cmp.Or(path, "value")] = fmt.Sprint(v)
	}
}
