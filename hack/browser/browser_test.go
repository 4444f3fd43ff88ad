//go:build browser

// Package browser drives `sandbox browse`, and reads reports, in a real browser: Debian's chromium.
//
//	make test-browser
//	make screenshots
package browser

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// shotsVar names the directory for screenshots. Without it there are none.
const shotsVar = "EVALBOX_SCREENSHOTS"

// attack is a text that would run a script wherever it became markup.
const attack = `"'></title></pre><script>window.pwned=1</script><img src=x onerror=window.pwned=2><svg onload=window.pwned=3>{{.}}` + "\u202e\x1b[31m"

// live prints metrics and lines until somebody ends it.
const live = `import json, math, sys, time
for step in range(600):
    print(json.dumps({"metric": {"loss": math.exp(-step / 40), "step": step}}), flush=True)
    print("step", step, flush=True)
    if step % 5 == 0:
        print("a warning at", step, file=sys.stderr, flush=True)
    time.sleep(0.2)
`

// site is a server with a browser that looks at it.
type site struct {
	*testing.T
	sandbox, state, url string
	browser             context.Context
	shots               string

	mu       sync.Mutex
	problems []string
}

func TestBrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	require.NoError(t, err, "chromium is missing: run make test-browser, which installs it, or apt-get install chromium")
	s := &site{T: t, sandbox: filepath.Join(t.TempDir(), "sandbox"), state: t.TempDir(), shots: os.Getenv(shotsVar)}
	s.run("go", "build", "-C", "../..", "-o", s.sandbox, "./cmd/sandbox")
	store, err := record.Open(filepath.Join(s.state, "evalbox"))
	require.NoError(t, err)
	fill(t, store)
	s.serve()
	s.start(chromium)

	s.opens()
	s.filters()
	id := s.follows()
	s.stops(id)
	s.again()
	s.compares()
	s.trials()
	s.hostile()
	s.keys()
	s.reports()
	require.Empty(t, s.problems[:min(3, len(s.problems))], "dialogs, exceptions, or violations of the content security policy")
}

// run runs a command to its end.
func (s *site) run(name string, args ...string) {
	out, err := exec.CommandContext(s.Context(), name, args...).CombinedOutput()
	require.NoError(s, err, "%s", out)
}

// command is the sandbox with the state of the test.
func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(s.Context()), s.sandbox, args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+s.state)
	cmd.Stderr = os.Stderr
	return cmd
}

// serve starts the page. It has to end well.
func (s *site) serve() {
	cmd := s.command("browse", "--control")
	out, err := cmd.StdoutPipe()
	require.NoError(s, err)
	require.NoError(s, cmd.Start())
	s.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		require.NoError(s, cmd.Wait(), "a signal is its normal end")
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(s, err)
	s.url = strings.TrimSpace(line)
}

// start starts the browser, which notes what must not happen.
func (s *site) start(chromium string) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.WindowSize(1200, 860))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	s.Cleanup(cancelAllocator)
	browser, cancel := chromedp.NewContext(allocator, chromedp.WithListener(s.heard))
	s.Cleanup(cancel)
	require.NoError(s, chromedp.Do(browser), "chromium starts")
	s.browser, cancel = context.WithTimeout(browser, 9*time.Minute)
	s.Cleanup(cancel)
	s.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, log.Enable, cdp.Empty{})
		return err
	}))
	s.theme("light")
}

// heard notes an event that must not happen.
func (s *site) heard(event any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		s.problems = append(s.problems, "dialog: "+e.Message)
	case *runtime.EventExceptionThrown:
		s.problems = append(s.problems, fmt.Sprintf("exception: %v", e.ExceptionDetails))
	case *log.EventEntryAdded:
		if e.Entry.Source == log.EntrySourceSecurity || strings.Contains(e.Entry.Text, "Content Security Policy") {
			s.problems = append(s.problems, "security: "+e.Entry.Text)
		}
	}
}

// do carries out actions in the browser.
func (s *site) do(actions ...chromedp.Action[chromedp.Void]) {
	s.Helper()
	require.NoError(s, chromedp.Do(s.browser, actions...))
}

// eval is the value of an expression in the page.
func eval[T any](s *site, expression string) (value T) {
	s.Helper()
	value, err := chromedp.Run(s.browser, chromedp.Evaluate[T](expression))
	require.NoError(s, err, expression)
	return value
}

// await waits until an expression is true in the page.
func (s *site) await(expression string) {
	s.Helper()
	require.Eventually(s, func() bool {
		is, err := chromedp.Run(s.browser, chromedp.Evaluate[bool](expression))
		return err == nil && is // there is no page for a moment, between two
	}, time.Minute, 100*time.Millisecond, expression)
}

// open opens a path of the page.
func (s *site) open(path string) {
	s.Helper()
	base, _, _ := strings.Cut(s.url, "/?")
	s.do(chromedp.Navigate(base+path), chromedp.WaitReady("main"))
}

// shot takes a picture of what is seen. The height is that of the page, within bounds.
func (s *site) shot(name string, most int64) {
	if s.shots == "" {
		return
	}
	height := min(most, int64(eval[float64](s, "document.documentElement.scrollHeight")))
	s.do(chromedp.Evaluate[chromedp.Void]("document.activeElement?.blur(); scrollTo(0, 0)"), chromedp.EmulateViewport(1200, height), chromedp.Sleep(300*time.Millisecond))
	picture, err := chromedp.Run(s.browser, chromedp.CaptureScreenshot())
	require.NoError(s, err)
	s.do(chromedp.EmulateViewport(1200, 860))
	picture = indexed(s.T, picture)
	require.LessOrEqual(s, len(picture), 150<<10, name)
	require.NoError(s, os.WriteFile(filepath.Join(s.shots, name+".png"), picture, 0o644))
}

// indexed is a PNG with 256 colors at most, which takes half of the space: the most frequent ones.
func indexed(t *testing.T, whole []byte) []byte {
	t.Helper()
	picture, err := png.Decode(bytes.NewReader(whole))
	require.NoError(t, err)
	counts := map[color.RGBA]int{}
	bounds := picture.Bounds()
	at := func(x, y int) color.RGBA {
		const mask = 0xf8
		c := color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)
		return color.RGBA{c.R&mask | c.R>>5, c.G&mask | c.G>>5, c.B&mask | c.B>>5, 255}
	}
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			counts[at(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return cmp.Compare(counts[b], counts[a]) })
	var palette color.Palette
	for _, c := range frequent[:min(len(frequent), 256)] {
		palette = append(palette, c)
	}
	small := image.NewPaletted(bounds, palette)
	known := map[color.RGBA]uint8{}
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			c := at(x, y)
			index, ok := known[c]
			if !ok {
				index = uint8(palette.Index(c))
				known[c] = index
			}
			small.SetColorIndex(x, y, index)
		}
	}
	var out bytes.Buffer
	require.NoError(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small))
	return out.Bytes()
}

// opens: the token opens the page, and is not in its address.
func (s *site) opens() {
	s.do(chromedp.Navigate(s.url), chromedp.WaitReady("main"))
	require.Equal(s, "/", eval[string](s, "location.pathname + location.search"))
	require.Contains(s, eval[string](s, "document.title"), "Runs")
	require.Empty(s, eval[string](s, "document.cookie"), "no script can read the cookie")
	s.await("document.querySelectorAll('#runs-body tr[data-key]').length > 10")
	s.await("document.getElementById('connection').textContent === 'live'")
	s.shot("browse-runs", 860)
}

// filters: the form has the filters of ls.
func (s *site) filters() {
	s.do(chromedp.SetValue("[name=status]", "failed"), chromedp.SendKeys("[name=name]", "train-*"), chromedp.Submit(".filters"), chromedp.WaitReady("main"))
	s.await("location.search.includes('status=failed')")
	require.Equal(s, 2, eval[int](s, "document.querySelectorAll('#runs-body tr[data-key]').length"))
	require.True(s, eval[bool](s, "[...document.querySelectorAll('#runs-body .mark')].every((mark) => mark.classList.contains('bad'))"))
}

// follows: a run appears in the list, and its lines on its page, without a reload.
func (s *site) follows() (id string) {
	s.open("/")
	s.do(chromedp.Evaluate[chromedp.Void]("window.same = true"))
	script := filepath.Join(s.TempDir(), "live.py")
	require.NoError(s, os.WriteFile(script, []byte(live), 0o600))
	run := s.command("run", "--detach", "--name", "live", "--timeout", "3m", script)
	out, err := run.Output()
	require.NoError(s, err)
	id = strings.TrimSpace(string(out))
	s.Cleanup(func() { _ = s.command("stop", id).Run() }) // it has ended, if all went well
	s.await(fmt.Sprintf("!!document.querySelector('tr[data-key=%q] .mark.live')", id))
	require.True(s, eval[bool](s, "window.same"), "the list was not loaded again")

	s.open("/runs/" + id)
	s.do(chromedp.Evaluate[chromedp.Void]("window.same = true"))
	s.await("document.querySelectorAll('#log-stdout li').length > 4")
	before := eval[int](s, "document.querySelectorAll('#log-stdout li').length")
	s.await(fmt.Sprintf("document.querySelectorAll('#log-stdout li').length > %d", before+10))
	s.await("document.querySelectorAll('#log-stderr li').length > 0")
	// The curve of the metric that the program prints grows.
	const curve = "(document.querySelector('#run-metrics svg[aria-label=loss] path.line')?.getAttribute('d').split('L').length ?? 0)"
	s.await(curve + " > 5")
	points := eval[int](s, curve)
	s.await(fmt.Sprintf("%s > %d", curve, points+5))
	texts := eval[[]string](s, "[...document.querySelectorAll('#log-stdout li')].map((line) => line.textContent).filter((text) => text.startsWith('step '))")
	for i, text := range texts {
		require.Equal(s, fmt.Sprintf("step %d", i), text, "every line is there once, in its order")
	}
	s.do(chromedp.SendKeys("[data-log-search]", "step 1"))
	s.await("document.querySelectorAll('#log-stdout li.hit').length > 0 && document.querySelectorAll('#log-stdout li.other').length > 0")
	s.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('[data-log-search]').value = ''; document.querySelector('[data-log-search]').dispatchEvent(new Event('input'))"))
	require.True(s, eval[bool](s, "window.same"), "the page was not loaded again")
	return id
}

// stops: the page with control ends a run.
func (s *site) stops(id string) {
	s.shot("browse-live", 1750)
	s.do(chromedp.Click("button.danger"), chromedp.WaitReady("main"))
	s.await("!document.querySelector('#run-status .mark.live') && document.getElementById('run-status').textContent.includes('cancel')")
	s.await("document.getElementById('run-end').textContent.includes('Limits and use')")
}

// again: the page with control starts the program of a run once more.
func (s *site) again() {
	s.do(chromedp.Click("form[action$=rerun] button"), chromedp.WaitReady("main"))
	s.await("!!document.querySelector('#run-status .mark.live') && document.querySelectorAll('#log-stdout li').length > 4")
	s.do(chromedp.Click("button.danger"), chromedp.WaitReady("main"))
	s.await("document.getElementById('run-status').textContent.includes('cancel')")
}

// compares: two chosen runs are compared.
func (s *site) compares() {
	s.open("/?name=train-*")
	s.do(chromedp.Evaluate[chromedp.Void]("[...document.querySelectorAll('#runs-body input')].slice(0, 2).forEach((box) => box.click())"),
		chromedp.Click(".pages button"), chromedp.WaitReady("table.pairs"))
	require.Contains(s, eval[string](s, "document.querySelector('main').textContent"), "loss, last")
	s.shot("browse-compare", 860)
}

// trials: batches, a leaderboard, a job, and the queue.
func (s *site) trials() {
	s.open("/trials")
	s.await("document.querySelectorAll('#trials-body tr[data-key]').length >= 2")
	s.open("/batches/batch-1")
	require.Equal(s, "solution-7", eval[string](s, "document.querySelector('#batch-body th').textContent"))
	s.shot("browse-batch", 860)
	s.do(chromedp.Click("#batch-body th a"), chromedp.WaitReady("#h-events"))
	s.open("/queue")
	require.Contains(s, eval[string](s, "document.querySelector('main').textContent"), "GPUs and queue")
}

// hostile: nothing of a program becomes a script, on any page.
func (s *site) hostile() {
	for _, path := range []string{
		"/", "/runs/hostile", "/runs/hostile/log", "/runs/hostile/log?stream=stderr&q=%3Cscript%3E", "/runs/hostile/files/0", "/runs/hostile/files/1",
		"/runs/hostile/files/2", "/compare?run=hostile&run=train-1", "/trials", "/batches/hostile", "/trials/hostile-job",
		"/?name=%22%3E%3Cscript%3Ewindow.pwned%3D1%3C/script%3E", "/runs/%3Cscript%3E",
	} {
		s.open(path)
		time.Sleep(200 * time.Millisecond)
		require.Equal(s, "undefined", eval[string](s, "typeof window.pwned"), path)
		require.Equal(s, 1, eval[int](s, "document.scripts.length"), path)
		require.NotContains(s, eval[string](s, "document.documentElement.textContent"), "\u202e", path)
	}
	s.open("/runs/train-1")
	require.True(s, eval[bool](s, "document.querySelectorAll('figure.plot svg').length > 0"))
	s.shot("browse-run", 1500)
}

// keys: the list can be used without a mouse.
func (s *site) keys() {
	s.open("/?name=train-*")
	s.do(chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	want := eval[string](s, "document.querySelectorAll('#runs-body tr')[1].dataset.key")
	require.Equal(s, want, eval[string](s, "document.querySelector('tr.here').dataset.key"))
	s.do(chromedp.KeyEvent("\r"), chromedp.WaitReady("#h-facts"))
	s.await(fmt.Sprintf("location.pathname === '/runs/%s'", want))
	s.open("/")
	s.do(chromedp.KeyEvent("/"))
	require.Equal(s, "name", eval[string](s, "document.activeElement.name"))
}

// score is that of a run of the training, and fails says which runs fail, with traceback.
func score(i int) float64 { return 0.62 + 0.021*float64(i) - 0.004*float64(i%3)*float64(i) }
func fails(i int) bool    { return i == 4 || i == 9 }

const traceback = "Traceback (most recent call last):\n  File \"/work/train.py\", line 48, in <module>\n    loss.backward()\nMemoryError: cannot allocate 2.1 GiB\n"

// fill makes runs and trials: those of a training, and one whose every text is an attack.
func fill(t *testing.T, store *record.Store) {
	t.Helper()
	now := time.Now()
	for i := 1; i <= 12; i++ {
		res := &result.Result{
			Status: result.StatusExited, Fault: result.FaultNone, Explanation: "the program exited with code 0", Score: new(score(i)),
			StartedAt: now.Add(time.Duration(i-13) * 7 * time.Minute).UTC().Format(time.RFC3339Nano), FinishedAt: now.UTC().Format(time.RFC3339Nano),
			DurationSeconds: 300 + 9*float64(i), SetupSeconds: 0.4, StdoutBytes: 800, OutputComplete: true,
			Resources: result.Resources{CPUSeconds: 560 + 17*float64(i), PeakMemoryBytes: int64(i)<<27 + 3<<29, Source: "cgroup v2"},
			Enforced: result.Enforced{TimeoutSeconds: 3600, MemoryBytes: 8 << 30, CPUs: 2, PIDs: 1024, DiskBytes: 20 << 30, StreamFileBytes: 100 << 20, User: "70000:70000", Network: "none",
				Isolation: result.Isolation{Grade: "separate"}},
		}
		last := math.Exp(-float64(i) / 6)
		res.Metrics = &result.Metrics{MeanCPUs: 1.8, PeakCPUs: 2, Custom: []result.CustomMetric{{Name: "loss", Count: 60, Last: &last, Min: &last, Max: new(1.0)}}}
		var stderr string
		if fails(i) {
			stderr = traceback
			res.ExitCode, res.Score, res.Fault, res.IsError, res.ErrorReason, res.ErrorTraceback = 1, nil, result.FaultProgram, true, result.ErrorReasonExitCode, &stderr
			res.Explanation = "the program exited with code 1, with a traceback"
		}
		var out strings.Builder
		for epoch := range 40 {
			fmt.Fprintf(&out, "epoch %2d  loss %.4f  accuracy %.4f\n", epoch, math.Exp(-float64(epoch)/15), 1-math.Exp(-float64(epoch)/12)/2)
		}
		dir := recordtest.Write(t, store, recordtest.Run{
			ID: fmt.Sprintf("train-%d", i), Owner: recordtest.DeadOwner(), Created: now.Add(time.Duration(i-13) * 7 * time.Minute),
			Job: spec.Job{Name: fmt.Sprintf("train-resnet-%d", i), Labels: map[string]string{"exp": "width", "seed": fmt.Sprint(i % 4)}, Script: "/home/me/train.py",
				Command: []string{"python3", "/work/train.py", "--width", fmt.Sprint(16 * i)}, TimeoutSeconds: 3600},
			Result: res, Stdout: out.String(), Stderr: stderr,
			Final: map[string]string{"model.bin": strings.Repeat("\x00\x01", 4000), "history.csv": "epoch,loss\n0,1.0\n1,0.93\n", "report/notes.txt": "It converged.\n"},
		})
		points(t, dir, i, "loss", "accuracy")
	}
	recordtest.Write(t, store, recordtest.Run{
		ID: "hostile", Owner: recordtest.DeadOwner(), Created: now.Add(-24 * time.Hour),
		Job: spec.Job{Name: attack, Labels: map[string]string{attack: attack}, Command: []string{attack}, Script: attack, Input: attack, Env: []string{attack}},
		Result: &result.Result{Status: result.StatusExited, ExitCode: 1, Fault: result.FaultProgram, IsError: true, ErrorReason: result.ErrorReasonExitCode,
			Explanation: attack, ErrorTraceback: new(attack), Warnings: []string{attack}},
		Stdout: attack + "\n", Stderr: attack + "\n",
		Final: map[string]string{"<img src=x onerror=window.pwned=4>.html": attack, "a.svg": `<svg xmlns="http://www.w3.org/2000/svg"><script>window.pwned=5</script></svg>`, "t.csv": attack + "," + attack + "\n" + attack + ",1\n"},
	})
	points(t, filepath.Join(store.RunsDir(), "hostile"), 1, attack)
	addTrials(t, store)
}

// points writes the measurements of a run.
func points(t *testing.T, dir string, seed int, names ...string) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, metrics.File))
	require.NoError(t, err)
	for i := range 120 {
		at := float64(i)
		values := map[string]metrics.Number{}
		for n, name := range names {
			values[name] = metrics.Number(math.Abs(float64(n)-math.Exp(-at/30)) + 0.02*math.Sin(at*float64(seed)))
		}
		fmt.Fprintln(file, jsonOf(t, metrics.Point{Schema: metrics.SchemaV1, Seconds: 3 * at, Usage: &metrics.Usage{
			CPUs: new(1.7 + 0.3*math.Sin(at/4)), MemoryBytes: new(int64(1<<30 + at*4e6 + 1e8*math.Sin(at/9))), Processes: new(int64(6 + i%3)), DiskBytes: new(int64(i) << 16),
		}}))
		fmt.Fprintln(file, jsonOf(t, metrics.Point{Schema: metrics.SchemaV1, Seconds: 3*at + 0.5, Step: &at, Values: values}))
	}
	require.NoError(t, file.Close())
}

func addTrials(t *testing.T, store *record.Store) {
	t.Helper()
	trials, err := trial.OpenLog(filepath.Join(store.Dir(), "trials"))
	require.NoError(t, err)
	for i := range 14 {
		r := trial.Result{
			Job:     trial.Job{ID: fmt.Sprintf("job-%02d", i), Kind: "evaluate", Name: fmt.Sprintf("solution-%d", i), Parent: "batch-1", Attempt: 1, Seed: new(uint64(i % 3))},
			Verdict: trial.Passed, Reason: "exited", Score: new(0.9 - 0.01*math.Abs(float64(i-7))), Ranking: &trial.Ranking{Task: "leaves", Direction: "maximize", Valid: true}, Started: time.Now().Add(-time.Hour),
			Runs: []trial.RunRef{{ID: fmt.Sprintf("train-%d", i%12+1), Role: "program"}}, Usage: trial.Usage{WallSeconds: 40 + 3*float64(i), CPUSeconds: 70, Runs: 1},
		}
		if i%5 == 4 {
			r.Verdict, r.Reason, r.Score, r.Ranking = trial.Failed, "timed_out", nil, &trial.Ranking{Task: "leaves", Direction: "maximize"}
		}
		require.NoError(t, trials.Add(r))
	}
	for _, job := range []trial.Job{{ID: "hostile-job", Kind: "evaluate", Name: attack, Parent: "hostile"}, {ID: "hostile-2", Kind: attack, Name: attack}} {
		require.NoError(t, trials.Add(trial.Result{Job: job, Verdict: trial.Failed, Reason: attack, Problems: []trial.Problem{{Field: attack, Rule: attack, Hint: attack}},
			Runs: []trial.RunRef{{ID: attack, Role: attack}}, Detail: []byte(jsonOf(t, map[string]string{attack: attack}))}))
	}
}

func jsonOf(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}
