package browse

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const token = "the-token-of-the-test"

// attack is markup, script, template, control and bidirectional characters.
const attack = `"'></title></pre></style><script>window.pwned=1</script><img src=x onerror=pwned()><a href=javascript:pwned()>{{.}}` + "\u202e\x1b[2J\x00\r"

// site is a server of a test with a client that has entered.
type site struct {
	*testing.T
	store  *record.Store
	trials *trial.Log
	server *httptest.Server
	client *http.Client
	browse *Server
	rerun  [][]string
}

// newSite serves a store, with control if asked for.
func newSite(t *testing.T, control bool) *site {
	t.Helper()
	s := &site{T: t, store: recordtest.Open(t)}
	var err error
	s.trials, err = trial.OpenLog(filepath.Join(s.store.Dir(), "trials"))
	require.NoError(t, err)
	return s.serve(control)
}

func (s *site) serve(control bool) *site {
	s.Helper()
	s.server = httptest.NewUnstartedServer(nil)
	o := Options{
		Store: s.store, Trials: s.trials, Host: s.server.Listener.Addr().String(), Token: token,
		Since: func(text string) (time.Time, error) {
			age, err := time.ParseDuration(text)
			return time.Now().Add(-age), err
		},
		GPUs: func(context.Context) (gpu.Listing, error) {
			holder := gpu.Holder{RunID: "held", Name: attack, User: attack}
			return gpu.Listing{
				GPUs:  []gpu.Listed{{Device: gpu.Device{ID: "0", Name: attack}, State: gpu.StateHeld, Reason: attack, Holders: []gpu.Ticket{{Holder: holder}}}},
				Queue: []gpu.Ticket{{Number: 4, Want: attack, Holder: holder}},
			}, nil
		},
	}
	if control {
		o.Control = &Control{Rerun: func(_ context.Context, args []string) (string, error) {
			s.rerun = append(s.rerun, args)
			if slices.Contains(args, "fails") {
				return "", errors.New("no engine")
			}
			return "again", nil
		}}
	}
	ctx, cancel := context.WithCancel(s.Context())
	s.browse = New(ctx, o)
	s.server.Config.Handler = s.browse
	s.server.Config.ReadTimeout, s.server.Config.WriteTimeout = time.Second, time.Second // live pages last longer
	s.server.Start()
	s.Cleanup(func() { cancel(); s.server.Close() })
	s.client = s.server.Client()
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.client.Transport = &carrier{next: s.client.Transport}
	resp, _ := s.get("/?token=" + token)
	require.Equal(s, http.StatusSeeOther, resp.StatusCode)
	require.Equal(s, "/", resp.Header.Get("Location"))
	cookie := resp.cookies[0]
	require.True(s, cookie.HttpOnly)
	require.Equal(s, http.SameSiteStrictMode, cookie.SameSite)
	s.client.Transport.(*carrier).cookie = cookie
	return s
}

// carrier sends the cookie.
type carrier struct {
	next   http.RoundTripper
	cookie *http.Cookie
}

func (c *carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.cookie != nil && r.Header.Get("No-Cookie") == "" {
		r.AddCookie(c.cookie)
	}
	return c.next.RoundTrip(r)
}

// answer is a response whose body was read.
type answer struct {
	StatusCode int
	Header     http.Header
	cookies    []*http.Cookie
}

// do makes a request with headers NAME: VALUE.
func (s *site) do(method, path, body string, headers ...string) (answer, string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.server.URL+path, strings.NewReader(body))
	require.NoError(s, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		} else {
			r.Header.Set(name, value)
		}
	}
	resp, err := s.client.Do(r)
	require.NoError(s, err)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	return answer{resp.StatusCode, resp.Header, resp.Cookies()}, string(content)
}

func (s *site) get(path string, headers ...string) (answer, string) {
	s.Helper()
	return s.do(http.MethodGet, path, "", headers...)
}

// page is a page that exists.
func (s *site) page(path string) string {
	s.Helper()
	resp, body := s.get(path)
	require.Equal(s, http.StatusOK, resp.StatusCode, "%s: %s", path, body)
	return body
}

// ended is a result that says little.
func ended(code int) *result.Result {
	r := &result.Result{Status: result.StatusExited, Fault: result.FaultNone, ExitCode: code, FinishedAt: "2026-01-02T03:04:05Z"}
	if code != 0 {
		r.Fault = result.FaultProgram
	}
	return r
}

func (s *site) add(id string, r recordtest.Run) string {
	s.Helper()
	r.ID = id
	if r.Owner == (owner.Owner{}) {
		r.Owner = recordtest.DeadOwner()
	}
	if r.Created.IsZero() {
		r.Created = time.Now()
	}
	return recordtest.Write(s, s.store, r)
}

func TestWhoMayEnter(t *testing.T) {
	s := newSite(t, true)
	s.add("one", recordtest.Run{Result: ended(0)})
	host := s.server.Listener.Addr().String()
	_, port, _ := strings.Cut(host, ":")
	for name, test := range map[string]struct {
		method, path string
		headers      []string
		want         int
	}{
		"with the cookie":        {"GET", "/", nil, http.StatusOK},
		"typed":                  {"GET", "/", []string{"Sec-Fetch-Site: none"}, http.StatusOK},
		"no cookie":              {"GET", "/", []string{"No-Cookie: 1"}, http.StatusUnauthorized},
		"no cookie, a file":      {"GET", "/static/browse.js", []string{"No-Cookie: 1"}, http.StatusUnauthorized},
		"a forged cookie":        {"GET", "/", []string{"No-Cookie: 1", "Cookie: evalbox-" + port + "=a.b"}, http.StatusUnauthorized},
		"an empty cookie":        {"GET", "/", []string{"No-Cookie: 1", "Cookie: evalbox-" + port + "=."}, http.StatusUnauthorized},
		"a wrong token":          {"GET", "/?token=x", nil, http.StatusUnauthorized},
		"an empty token":         {"GET", "/?token=", []string{"No-Cookie: 1"}, http.StatusUnauthorized},
		"the token elsewhere":    {"GET", "/trials?token=" + token, []string{"No-Cookie: 1"}, http.StatusUnauthorized},
		"a name of another site": {"GET", "/?token=" + token, []string{"Host: evil.example:" + port}, http.StatusMisdirectedRequest},
		"localhost":              {"GET", "/", []string{"Host: localhost:" + port}, http.StatusMisdirectedRequest},
		"another port":           {"GET", "/", []string{"Host: 127.0.0.1:1"}, http.StatusMisdirectedRequest},
		"from another site":      {"GET", "/runs/one", []string{"Sec-Fetch-Site: cross-site"}, http.StatusForbidden},
		"from another port":      {"GET", "/runs/one", []string{"Sec-Fetch-Site: same-site"}, http.StatusForbidden},
		"a method":               {"DELETE", "/runs/one", nil, http.StatusMethodNotAllowed},
		"TRACE":                  {"TRACE", "/", nil, http.StatusMethodNotAllowed},
		"a form for a page":      {"POST", "/", nil, http.StatusForbidden},
		"unknown":                {"GET", "/nothing", nil, http.StatusNotFound},
		"no run":                 {"GET", "/runs/two", nil, http.StatusNotFound},
		"a path as a run":        {"GET", "/runs/..%2f..%2fetc", nil, http.StatusNotFound},
		"the parent as a run":    {"GET", "/runs/%2e%2e", nil, http.StatusNotFound},
		"a path as a file":       {"GET", "/static/..%2fbrowse.go", nil, http.StatusNotFound},
		"a template":             {"GET", "/static/run.html", nil, http.StatusNotFound},
		"a path as an output":    {"GET", "/runs/one/files/..%2f..%2fresult.json", nil, http.StatusNotFound},
		"a negative output":      {"GET", "/runs/one/files/-1", nil, http.StatusNotFound},
		"no output":              {"GET", "/runs/one/files/0", nil, http.StatusNotFound},
		"no stream":              {"GET", "/runs/one/log?stream=spec.json", nil, http.StatusNotFound},
		"no raw stream":          {"GET", "/runs/one/raw/spec.json", nil, http.StatusNotFound},
		"no job":                 {"GET", "/trials/none", nil, http.StatusNotFound},
		"a path as a job":        {"GET", "/trials/..%2fx", nil, http.StatusNotFound},
		"no batch":               {"GET", "/batches/none", nil, http.StatusNotFound},
		"one run to compare":     {"GET", "/compare?run=one", nil, http.StatusNotFound},
		"a path to compare":      {"GET", "/compare?run=one&run=../one", nil, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := s.do(test.method, test.path, "", test.headers...)
			require.Equal(t, test.want, resp.StatusCode, body)
			require.NotContains(t, body, token)
			for header, want := range map[string]string{
				"Content-Security-Policy": policyText, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			} {
				require.Equal(t, want, resp.Header.Get(header), header)
			}
		})
	}
}

func TestControl(t *testing.T) {
	s := newSite(t, true)
	s.add("goes-on", recordtest.Run{Owner: owner.This(), Job: spec.Job{Command: []string{"true"}}})
	s.add("fails", recordtest.Run{Result: ended(1), Job: spec.Job{Command: []string{"fails"}}})
	s.add("mounts", recordtest.Run{Result: ended(1), Job: spec.Job{Command: []string{"x"}, Mounts: []spec.HostMount{{Source: "/a", Target: "/b"}}}})
	body := s.page("/runs/goes-on")
	_, rest, found := strings.Cut(body, `name="csrf" value="`)
	require.True(t, found)
	proof, _, _ := strings.Cut(rest, `"`)
	form := url.Values{"csrf": {proof}}.Encode()
	const kind, ours = "Content-Type: application/x-www-form-urlencoded", "Sec-Fetch-Site: same-origin"
	own := "Origin: http://" + s.server.Listener.Addr().String()
	for name, test := range map[string]struct {
		form    string
		headers []string
	}{
		"no proof":           {"", []string{kind, ours}},
		"a wrong proof":      {"csrf=x", []string{kind, ours}},
		"another site":       {form, []string{kind, "Sec-Fetch-Site: cross-site", own}},
		"another origin":     {form, []string{kind, ours, "Origin: http://evil.example"}},
		"nobody says where":  {form, []string{kind}},
		"an unknown origin":  {form, []string{kind, "Origin: null"}},
		"typed":              {form, []string{kind, "Sec-Fetch-Site: none"}},
		"the proof in a URL": {"", []string{kind, ours}},
		"no cookie":          {form, []string{kind, ours, "No-Cookie: 1"}},
	} {
		path := "/runs/goes-on/stop"
		if name == "the proof in a URL" {
			path += "?" + form
		}
		resp, _ := s.do(http.MethodPost, path, test.form, test.headers...)
		require.Contains(t, []int{http.StatusForbidden, http.StatusUnauthorized}, resp.StatusCode, name)
		asked, _ := s.store.StopRequested("goes-on")
		require.False(t, asked, name)
	}
	resp, _ := s.get("/runs/goes-on/stop")
	require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
	for _, headers := range [][]string{{kind, ours, "Origin: null"}, {kind, own}} {
		resp, _ = s.do(http.MethodPost, "/runs/goes-on/stop", form, headers...)
		require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	}
	asked, now := s.store.StopRequested("goes-on")
	require.True(t, asked && !now)
	require.Contains(t, s.page("/runs/goes-on"), "Somebody asked this run to end")
	for path, want := range map[string]int{
		"/runs/fails/stop": http.StatusConflict, "/runs/none/stop": http.StatusNotFound, "/runs/goes-on/rerun": http.StatusSeeOther,
		"/runs/fails/rerun": http.StatusBadGateway, "/runs/mounts/rerun": http.StatusConflict, "/runs/goes-on/delete": http.StatusNotFound,
	} {
		resp, body := s.do(http.MethodPost, path, form, kind, ours)
		require.Equal(t, want, resp.StatusCode, "%s: %s", path, body)
	}
	dir := s.add("damaged", recordtest.Run{})
	require.NoError(t, os.WriteFile(filepath.Join(dir, record.SpecFile), nil, 0o600))
	resp, body = s.do(http.MethodPost, "/runs/damaged/stop", form, kind, ours)
	require.Equal(t, http.StatusConflict, resp.StatusCode)
	require.Contains(t, body, "End the run with: sandbox rm damaged", "its program may run")
	require.NoError(t, s.store.Settle("damaged"))
	_, body = s.do(http.MethodPost, "/runs/damaged/stop", form, kind, ours)
	require.Contains(t, body, "The run has ended already.")

	reader := newSite(t, false)
	reader.add("goes-on", recordtest.Run{Owner: owner.This()})
	require.NotContains(t, reader.page("/runs/goes-on"), "csrf")
	for _, path := range []string{"/runs/goes-on/stop", "/runs/goes-on/rerun"} {
		form := url.Values{"csrf": {reader.browse.guard.sign("csrf", "")}}.Encode()
		resp, _ := reader.do(http.MethodPost, path, form, kind, ours)
		require.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, resp.StatusCode)
		resp, _ = reader.get(path)
		require.Equal(t, http.StatusNotFound, resp.StatusCode, "without control the route does not exist")
	}
}

func TestAgain(t *testing.T) {
	whole := record.Record{Dir: "/state/runs/x", Spec: spec.Spec{
		Class: spec.Class{Image: spec.Image{Reference: "debian"}, Runtime: "runsc", Cgroup: spec.Cgroup{MemoryBytes: 1 << 30, NanoCPUs: 1_500_000_000, PIDs: 64},
			Binds: []spec.Bind{{Role: spec.RoleProgram, Target: "/work/a b.py"}}, GPUs: spec.GPURequest{Count: 2}},
		Job: spec.Job{Name: "n", Labels: map[string]string{"exp": "a,b", "trial.id": "x"}, Command: []string{"python3", "/work/a b.py", "--", "it's"}, Script: "/home/a b.py",
			Env: []string{"A=1 2"}, Input: "/data", TimeoutSeconds: 90, DiskBytes: 1 << 30, OutputLimitBytes: 1 << 20, StopWhen: []string{"metric.loss is nan"}},
	}}
	require.Equal(t, `sandbox run --detach --name n --label exp=a,b --image debian --runtime runsc --timeout 90s --stop-when 'metric.loss is nan'`+
		` --memory 1GiB --cpus 1.5 --pids-limit 64 --disk 1GiB --output-limit 1MiB --gpus 2`+
		` --env 'A=1 2' --input /data '/state/runs/x/program/a b.py' -- 'it'\''s'`, strings.ReplaceAll(againOf(whole).Command(), "  ", " "))
	command := whole
	command.Spec.Job.Script, command.Spec.Job.OutputLimitBytes = "", 0
	require.NotContains(t, againOf(command).Args, "--output-limit")
	require.Equal(t, []string{"--", "python3", "/work/a b.py", "--", "it's"}, againOf(command).Args[len(againOf(command).Args)-5:])
	for _, change := range []func(*spec.Spec){
		func(p *spec.Spec) { p.Job.Command = nil }, func(p *spec.Spec) { p.Job.Trees = []spec.JobTree{{}} }, func(p *spec.Spec) { p.Job.Secrets = []string{"KEY"} },
		func(p *spec.Spec) { p.Job.Egress = &spec.Egress{} }, func(p *spec.Spec) { p.Class.Binds = nil }, func(p *spec.Spec) { p.Job.Command = []string{"python3"} },
		func(p *spec.Spec) { p.Class.Preload = &spec.Preload{} }, func(p *spec.Spec) { p.Job.Stdin = true }, func(p *spec.Spec) { p.Job.SoftTimeoutSeconds = 1 },
		func(p *spec.Spec) { p.Job.NoFork = true },
	} {
		changed := whole
		change(&changed.Spec)
		require.NotEmpty(t, againOf(changed).Missing)
	}
}

func TestFilters(t *testing.T) {
	s := newSite(t, false)
	now := time.Now()
	s.add("good", recordtest.Run{Result: ended(0), Job: spec.Job{Name: "train-a", Labels: map[string]string{"exp": "1"}}, Created: now.Add(-3 * time.Hour)})
	s.add("bad", recordtest.Run{Result: ended(3), Job: spec.Job{Name: "train-b"}, Created: now.Add(-2 * time.Hour)})
	s.add("on", recordtest.Run{Owner: owner.This(), Job: spec.Job{Name: "other"}, Created: now})
	for query, want := range map[string][]string{
		"":                            {"on", "bad", "good"},
		"?status=failed":              {"bad"},
		"?status=running":             {"on"},
		"?status=succeeded&label=exp": {"good"},
		"?name=train-*":               {"bad", "good"},
		"?label=exp%3D1":              {"good"},
		"?since=2h30m":                {"on", "bad"},
		"?page=2":                     nil,
		"?page=-1":                    {"on", "bad", "good"},
	} {
		require.Eventually(t, func() bool { return slices.Equal(want, keys(t, s.page("/"+query))) }, 5*time.Second, 50*time.Millisecond, query)
	}
	for _, query := range []string{"?status=nosuch", "?name=[", "?since=soon"} {
		require.Contains(t, s.page("/"+query), "The filter cannot be used")
	}
}

// keys are the rows of the first table of a page.
func keys(t *testing.T, page string) (found []string) {
	t.Helper()
	walk(parse(t, page), func(n *html.Node) {
		if key, ok := attribute(n, "data-key"); ok {
			found = append(found, key)
		}
	})
	return found
}

func parse(t *testing.T, page string) *html.Node {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	return root
}

func walk(n *html.Node, each func(*html.Node)) {
	each(n)
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		walk(c, each)
	}
}

func attribute(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

// elements are all elements that pages have, and attributes all of their attributes.
var (
	elements = strings.Fields("html head meta title link script body a header p nav main footer kbd h1 h2 h3 form label select option input button " +
		"div table caption thead tbody tr th td span time code noscript section ul li ol dl dt dd pre details summary img br b " +
		"figure figcaption svg title desc path line text g circle rect polyline tspan")
	attributes = strings.Fields("lang charset name content rel href src defer class data-live id role tabindex aria-label aria-labelledby aria-current aria-live " +
		"method action type value placeholder size data-search data-sort data-key data-value data-log-search data-follow checked selected autocomplete scope colspan title " +
		"datetime download alt d x x1 x2 y y1 y2 cx cy r width height viewbox viewBox transform text-anchor aria-hidden points fill dy dx preserveAspectRatio fill-opacity")
)

// harmless fails unless a page has only known elements and attributes, and shows every text of an
// attack as text.
func harmless(t *testing.T, path, page string) {
	t.Helper()
	scripts := 0
	walk(parse(t, page), func(n *html.Node) {
		if n.Type != html.ElementNode {
			assert.Falsef(t, strings.ContainsAny(n.Data, "\u202e\x1b\x00\r"), "%s: %q", path, n.Data)
			return
		}
		assert.Contains(t, elements, n.Data, path)
		if n.Data == "script" {
			scripts++
		}
		for _, a := range n.Attr {
			assert.Contains(t, attributes, a.Key, "%s: %s", path, n.Data)
			assert.Falsef(t, strings.ContainsAny(a.Val, "\u202e\x1b\x00\r"), "%s: %s", path, a.Val)
			if slices.Contains([]string{"href", "src", "action", "data-live"}, a.Key) {
				assert.Regexp(t, `^[/#][^/\\]|^[/#]$|^/$`, a.Val, path)
			}
		}
	})
	assert.Equal(t, 1, scripts, path)
}

// hostile adds runs and jobs whose every text is an attack.
func (s *site) hostile() {
	s.Helper()
	res := ended(1)
	res.IsError, res.ErrorReason, res.ErrorTraceback, res.Explanation, res.Warnings = true, result.ErrorReasonExitCode, new(attack), attack, []string{attack}
	res.OutputsSkipped = []result.SkippedOutput{{Path: attack, Kind: attack, Reason: attack}}
	res.StoppedBy, res.Score = &result.StoppedBy{Rule: attack, Reason: attack}, new(0.5)
	res.Network = &result.Network{Level: attack}
	res.Image.Name = attack
	res.Enforced.User, res.Enforced.Network, res.Enforced.GPUs, res.Enforced.Isolation.Grade = attack, attack, []string{attack}, attack
	res.Metrics = &result.Metrics{Custom: []result.CustomMetric{{Name: attack, Last: new(1.0)}}}
	job := spec.Job{Name: attack, Labels: map[string]string{attack: attack, "trial.id": attack}, Command: []string{attack}, Script: "/" + attack, Input: attack, Env: []string{attack}}
	final := map[string]string{"<img src=x onerror=pwned()>.html": attack, "a.svg": "<svg xmlns='http://www.w3.org/2000/svg'><script>pwned()</script></svg>",
		"t.csv": attack + "," + attack + "\n" + attack + "\n", "\u202egnp.exe": attack}
	dir := s.add("hostile", recordtest.Run{Job: job, Result: res, Stdout: attack + "\n" + attack, Stderr: attack, Final: final})
	var lines bytes.Buffer
	for i := range 3 {
		line, err := json.Marshal(metrics.Point{Schema: metrics.SchemaV1, Seconds: float64(i), Values: map[string]metrics.Number{attack: metrics.Number(i)},
			Usage: &metrics.Usage{CPUs: new(float64(i)), GPUs: []metrics.GPU{{ID: attack, Utilization: 0.5}}}})
		require.NoError(s, err)
		lines.Write(append(line, '\n'))
	}
	require.NoError(s, os.WriteFile(filepath.Join(dir, metrics.File), lines.Bytes(), 0o600))
	s.add("hostile-on", recordtest.Run{Owner: owner.This(), Job: job, Stdout: attack + "\n", Stderr: attack + "\n"})
	for _, job := range []trial.Job{{ID: "hostile-job", Kind: attack, Name: attack, Parent: "hostile"}, {ID: "alone", Kind: attack, Name: attack, Parent: attack}} {
		require.NoError(s, s.trials.Add(trial.Result{
			Job: job, Verdict: trial.Failed, Reason: attack, Score: new(0.1), Problems: []trial.Problem{{Field: attack, Rule: attack, Hint: attack}},
			Runs: []trial.RunRef{{ID: "hostile", Role: attack}, {ID: attack, Role: attack}}, Detail: json.RawMessage(`{"a":"<script>pwned()</script>"}`),
		}))
	}
}

// TestHostileTextsNeverBecomeMarkup: whatever a program wrote, and wherever, a page shows it as text.
func TestHostileTextsNeverBecomeMarkup(t *testing.T) {
	s := newSite(t, true)
	s.hostile()
	require.Eventually(t, func() bool { return len(keys(t, s.page("/"))) == 2 }, 5*time.Second, 50*time.Millisecond)
	evil := url.QueryEscape(attack)
	for _, path := range []string{
		"/", "/?name=" + evil, "/?label=" + evil, "/?since=" + evil, "/?status=" + evil, "/runs/hostile", "/runs/hostile-on", "/runs/hostile/log", "/runs/hostile/log?stream=stderr",
		"/runs/hostile/log?q=" + evil, "/runs/hostile/files/0", "/runs/hostile/files/1", "/runs/hostile/files/2", "/runs/hostile/files/3",
		"/compare?run=hostile&run=hostile-on", "/trials", "/batches/hostile", "/trials/hostile-job", "/trials/alone", "/queue",
	} {
		harmless(t, path, s.page(path))
	}
	for _, path := range []string{"/runs/" + url.PathEscape(attack), "/trials/" + url.PathEscape(attack), "/batches/" + url.PathEscape(attack), "/runs/hostile/log?stream=" + evil, "/compare?run=" + evil + "&run=x"} {
		resp, body := s.get(path)
		require.Equal(t, http.StatusNotFound, resp.StatusCode, path)
		harmless(t, path, body)
	}
	for _, path := range []string{"/live", "/runs/hostile/live", "/runs/hostile-on/live", "/trials/live", "/batches/hostile/live", "/queue/live"} {
		for _, u := range s.events(path, 1) {
			harmless(t, path, `<script></script><table><tbody>`+u.HTML)
		}
	}
	for _, stream := range []string{"stdout", "stderr"} {
		resp, body := s.get("/runs/hostile/raw/" + stream)
		require.Equal(t, "application/octet-stream", resp.Header.Get("Content-Type"))
		require.Contains(t, resp.Header.Get("Content-Disposition"), "attachment")
		require.Contains(t, resp.Header.Get("Content-Security-Policy"), "sandbox")
		require.Contains(t, body, attack)
	}
}

// events reads the first events of a live page.
func (s *site) events(path string, least int) (updates []update) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+path, nil)
	require.NoError(s, err)
	resp, err := s.client.Do(r)
	require.NoError(s, err)
	defer resp.Body.Close()
	require.Equal(s, "text/event-stream", resp.Header.Get("Content-Type"))
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var u update
			require.NoError(s, json.Unmarshal([]byte(data), &u))
			if updates = append(updates, u); len(updates) >= least {
				return updates
			}
		}
	}
	require.NoError(s, lines.Err())
	return updates
}

// TestLiveRun: lines arrive once and in their order, and the end brings the result.
func TestLiveRun(t *testing.T) {
	s := newSite(t, false)
	dir := s.add("on", recordtest.Run{Owner: owner.This(), Stdout: "one\ntwo\npart"})
	var shown []string
	done := make(chan struct{})
	var ups []update
	go func() {
		defer close(done)
		ups = s.events("/runs/on/live", 1000)
	}()
	time.Sleep(700 * time.Millisecond)
	file, err := os.OpenFile(filepath.Join(dir, record.StdoutFile), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString("ial\nthree\nlast")
	require.NoError(t, err)
	require.NoError(t, file.Close())
	time.Sleep(1500 * time.Millisecond)
	res := ended(0)
	res.ID = "on"
	text, err := res.Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, record.ResultFile), text, 0o600))
	<-done
	status := ""
	for _, u := range ups {
		switch u.Target {
		case "log-stdout":
			walk(parse(t, u.HTML), func(n *html.Node) {
				if n.Data == "li" {
					shown = append(shown, n.FirstChild.Data)
				}
			})
		case "run-status":
			status = u.HTML
		}
	}
	require.Equal(t, []string{"one", "two", "partial", "three", "last"}, shown)
	require.Contains(t, status, "exited 0")
}

func TestStreamsAreBounded(t *testing.T) {
	s := newSite(t, false)
	for range maxStreams {
		s.browse.streams <- struct{}{}
	}
	resp, _ := s.get("/live")
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	<-s.browse.streams
	require.NotEmpty(t, s.events("/live", 1))
	// A request for the headers alone holds none.
	resp, _ = s.do(http.MethodHead, "/live", "")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Eventually(t, func() bool { return len(s.browse.streams) == maxStreams-1 }, 10*time.Second, 10*time.Millisecond)
}

// TestUsualPort: a browser leaves the port of HTTP out of its headers.
func TestUsualPort(t *testing.T) {
	for host, want := range map[string]string{"127.0.0.1:80": "127.0.0.1", "[::1]:80": "[::1]", "127.0.0.1:8080": "127.0.0.1:8080"} {
		require.Equal(t, want, newGuard(host, token).host)
	}
	require.Equal(t, "evalbox-80", newGuard("127.0.0.1:80", token).cookie)
}

// TestPreviewsAreBounded: an output is in memory until its answer is written.
func TestPreviewsAreBounded(t *testing.T) {
	s := newSite(t, false)
	s.add("one", recordtest.Run{Result: ended(0), Final: map[string]string{"a": "x"}})
	for range maxPreviews {
		s.browse.previews <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	s.browse.preview(func(http.ResponseWriter, *http.Request) { assert.Fail(t, "is answered") })(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	<-s.browse.previews
	require.Contains(t, s.page("/runs/one/files/0"), "<pre")
	require.Len(t, s.browse.previews, maxPreviews-1)
}

// TestHugeLog: a page has the end of a long log, and parts and matches of all of it.
func TestHugeLog(t *testing.T) {
	s := newSite(t, false)
	var b strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	b.WriteString(strings.Repeat("x", 3<<20) + "\nneedle\n")
	s.add("long", recordtest.Run{Result: ended(0), Stdout: b.String(), Stderr: strings.Repeat("e\n", 50)})
	s.add("endless", recordtest.Run{Result: ended(0), Stdout: strings.Repeat("y", 3<<20)})
	for _, path := range []string{"/runs/long", "/runs/endless", "/runs/long/log", "/runs/endless/log", "/runs/long/log?from=99999999999"} {
		require.Less(t, len(s.page(path)), 2<<20, path)
	}
	first := s.page("/runs/long/log")
	require.Contains(t, first, "<li>line 0</li>")
	require.Contains(t, first, "<li>line 1999</li>")
	require.NotContains(t, first, "<li>line 2000</li>")
	found := s.page("/runs/long/log?q=line+5999")
	require.Contains(t, found, "<li>line 59990</li>")
	require.NotContains(t, found, "<li>line 60</li>")
	require.Contains(t, s.page("/runs/long/log?q=needle"), "<li>needle</li>")

	f := follower{path: filepath.Join(s.store.RunsDir(), "long", record.StdoutFile)}
	_, fresh, err := f.next(false)
	require.NoError(t, err)
	require.True(t, fresh)
	require.Positive(t, f.skipped)
}

func TestPreviews(t *testing.T) {
	var picture bytes.Buffer
	require.NoError(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 3, 2))))
	huge := append([]byte(nil), picture.Bytes()...)
	copy(huge[16:24], []byte{0, 1, 0, 0, 0, 1, 0, 0}) // 65536 x 65536
	s := newSite(t, false)
	final := map[string]string{
		"a.png": picture.String(), "b.txt": picture.String(), "c.png": "<html><script>x</script>", "d.svg": "<svg/>", "e.csv": "x,y\n1,2\n", "f.bin": "a\x00b",
		"g.txt": "plain\n", "h.png": string(huge), "i.gif": "GIF89a<script>", "j.txt": strings.Repeat("z", maxText+10),
	}
	dir := s.add("one", recordtest.Run{Result: ended(0), Final: final})
	for n, path := range slices.Sorted(slices.Values([]string{"a.png", "b.txt", "c.png", "d.svg", "e.csv", "f.bin", "g.txt", "h.png", "i.gif", "j.txt"})) {
		body := s.page(fmt.Sprintf("/runs/one/files/%d", n))
		resp, _ := s.get(fmt.Sprintf("/runs/one/files/%d/picture", n))
		isPicture := path == "a.png" || path == "b.txt"
		require.Equal(t, isPicture, strings.Contains(body, "<img"), path)
		require.Equal(t, isPicture, resp.StatusCode == http.StatusOK, path)
		if isPicture {
			require.Equal(t, "image/png", resp.Header.Get("Content-Type"))
			require.Equal(t, "default-src 'none'; sandbox", resp.Header.Get("Content-Security-Policy"))
			require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
		}
	}
	require.Contains(t, s.page("/runs/one/files/4"), `<th scope="col">x</th>`)
	require.Contains(t, s.page("/runs/one/files/6"), "plain")
	require.Contains(t, s.page("/runs/one/files/9"), "only the beginning")

	// Neither a link nor another content takes the place of an output.
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("plain\n"), 0o600))
	output := filepath.Join(dir, record.OwnFinal, "g.txt")
	require.NoError(t, os.Remove(output))
	require.NoError(t, os.Symlink(secret, output))
	body := s.page("/runs/one/files/6")
	require.Contains(t, body, "not a regular file")
	require.NotContains(t, body, "<pre")
	require.NoError(t, os.Remove(output))
	require.NoError(t, os.WriteFile(output, []byte("other\n"), 0o600))
	require.Contains(t, s.page("/runs/one/files/6"), "content has changed")
}

// TestOutputsOutsideOfFinal: a path of a damaged result leads nowhere.
func TestOutputsOutsideOfFinal(t *testing.T) {
	s := newSite(t, false)
	dir := s.add("one", recordtest.Run{Result: ended(0), Final: map[string]string{"a": "x"}})
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, record.OwnFinal, "up")))
	each, err := s.store.Load("one")
	require.NoError(t, err)
	for _, path := range []string{"../result.json", "/etc/passwd", "up/result.json", "..", ".", ""} {
		_, err := readOutput(each, result.Output{Path: path, SizeBytes: 10})
		require.Error(t, err, path)
	}
	_, err = readOutput(each, result.Output{Path: "a", SizeBytes: maxPreview + 1})
	require.ErrorIs(t, err, errTooLong)
}

func TestBatches(t *testing.T) {
	s := newSite(t, false)
	add := func(name string, verdict trial.Verdict, score *float64, ranking *trial.Ranking) {
		require.NoError(t, s.trials.Add(trial.Result{Job: trial.Job{ID: name, Kind: "evaluate", Name: name, Parent: "b1"}, Verdict: verdict, Score: score, Ranking: ranking, Reason: "exited"}))
	}
	valid := &trial.Ranking{Task: "houses", Direction: "minimize", Valid: true}
	add("failed", trial.Failed, new(0.001), &trial.Ranking{Task: "houses", Direction: "minimize"})
	add("high", trial.Passed, new(0.9), valid)
	add("none", trial.Passed, nil, valid)
	add("low", trial.Passed, new(0.1), valid)
	add("tie", trial.Passed, new(0.1), valid)
	blocked := make(chan struct{})
	queue := trial.Queue{Log: s.trials}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = queue.Run(s.Context(), waiting{blocked}, slices.Values([]trial.Job{{ID: "open", Kind: "evaluate", Name: "open", Parent: "b1"}}))
	}()
	var body string
	require.Eventually(t, func() bool { body = s.page("/batches/b1"); return strings.Contains(body, "waiting") }, 10*time.Second, 100*time.Millisecond)
	require.Equal(t, []string{"low", "tie", "high", "none", "failed", "open"}, keys(t, body))
	var ranks []string
	for _, cell := range regexp.MustCompile(`<tr data-key="[^"]*">\s*<td class="n">(\d*)</td>`).FindAllStringSubmatch(body, -1) {
		ranks = append(ranks, cell[1])
	}
	require.Equal(t, []string{"1", "1", "3", "", "", ""}, ranks)
	require.Contains(t, body, "Leaderboard of houses")
	require.Contains(t, body, "the lowest score is the best")
	require.Contains(t, body, "1 are open")
	require.Contains(t, s.page("/queue"), "for a GPU")
	list := s.page("/trials")
	require.Equal(t, []string{"b1"}, keys(t, list))
	require.Contains(t, list, "<td>houses</td>")
	require.Contains(t, list, `<td class="n">0.1</td>`, "the best score")
	close(blocked)
	<-ended
}

// waiting is a harness whose jobs wait.
type waiting struct{ until chan struct{} }

func (waiting) Kind() string                                        { return "evaluate" }
func (waiting) Schema() []byte                                      { return nil }
func (waiting) Plan(context.Context, trial.Job) (trial.Plan, error) { return trial.Plan{}, nil }
func (w waiting) Run(_ context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error) {
	emit(trial.Event{Kind: trial.EventWaiting, Text: "for a GPU"})
	<-w.until
	return trial.Result{Job: job, Verdict: trial.Passed}, nil
}

// TestIndexIsIncremental: a finished run is read once; new and unfinished ones are looked at again.
func TestIndexIsIncremental(t *testing.T) {
	s := &site{T: t, store: recordtest.Open(t)}
	dir := s.add("done", recordtest.Run{Result: ended(0), Created: time.Unix(1, 0)})
	s.add("on", recordtest.Run{Owner: owner.This(), Created: time.Unix(2, 0)})
	x := newIndex(s.store)
	ids := func() (ids []string) {
		x.refresh(0)
		all, _ := x.list()
		for _, each := range all {
			ids = append(ids, each.ID+" "+each.Ending)
		}
		return ids
	}
	require.Equal(t, []string{"on running", "done exited 0"}, ids())
	require.NoError(t, os.WriteFile(filepath.Join(dir, record.ResultFile), []byte("damaged"), 0o600))
	s.add("new", recordtest.Run{Result: ended(1), Created: time.Unix(3, 0)})
	require.Equal(t, []string{"new exited 1", "on running", "done exited 0"}, ids(), "what is settled is not read again")
	_, err := x.list()
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dir))
	s.add("damaged", recordtest.Run{Result: ended(0)})
	require.NoError(t, os.WriteFile(filepath.Join(s.store.RunsDir(), "damaged", record.ResultFile), []byte("{"), 0o600))
	require.Equal(t, []string{"damaged unreadable", "new exited 1", "on running"}, ids())
	_, err = x.list()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(s.store.RunsDir(), "closed", record.JournalFile), 0o700))
	require.Equal(t, []string{"damaged unreadable", "new exited 1", "on running"}, ids())
	_, err = x.list()
	require.ErrorContains(t, err, "closed")
}

// BenchmarkList measures the list of 10,000 runs: the first look, and a page of the list.
func BenchmarkList(b *testing.B) {
	store := recordtest.Open(b)
	for i := range 10_000 {
		recordtest.Add(b, store, fmt.Sprintf("run-%05d", i), recordtest.DeadOwner(), time.Unix(int64(i), 0), true)
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			newIndex(store).refresh(0)
		}
	})
	s := &Server{Options: Options{Store: store}, index: newIndex(store)}
	s.index.refresh(0)
	b.Run("refresh", func(b *testing.B) {
		for b.Loop() {
			s.index.refresh(0)
		}
	})
	b.Run("page", func(b *testing.B) {
		for b.Loop() {
			v := s.runsView(s.readQuery(url.Values{"status": {"succeeded"}}))
			if _, err := fragment("runs", page{Body: v}); err != nil || v.Total != 10_000 {
				b.Fatal(err, v.Total)
			}
		}
	})
}

func TestIndexCountsWhatRuns(t *testing.T) {
	s := &site{T: t, store: recordtest.Open(t)}
	x := newIndex(s.store)
	live := func() bool {
		x.refresh(0)
		_, live := x.state()
		return live
	}
	require.False(t, live())
	dir := s.add("on", recordtest.Run{Owner: owner.This()})
	gone := s.add("gone", recordtest.Run{Owner: owner.This()})
	require.True(t, live())
	res := ended(0)
	res.ID = "on"
	text, err := res.Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, record.ResultFile), text, 0o600))
	require.True(t, live())
	require.NoError(t, os.RemoveAll(gone))
	require.False(t, live())
}
