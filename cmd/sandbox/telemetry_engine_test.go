package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
)

// lockedText is a stream that can be read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A batch can be scraped while it runs, and no more when it has ended.
func TestEngineBatchIsScraped(t *testing.T) {
	inTask(t, map[string]string{
		"fast.py": "print('Final Validation Performance: 0.5')",
		"slow.py": "import os, time\nwhile not os.path.exists('input/go'): time.sleep(0.05)\nraise SystemExit(3)",
		"tail.py": "print('Final Validation Performance: 0.75')",
	})
	var out, errs lockedText
	ended := make(chan int, 1)
	go func() {
		ended <- Run(t.Context(), []string{"batch", "fast.py", "slow.py", "tail.py", "--task", "task.yaml", "--metrics-listen", "127.0.0.1:0"},
			cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	}()
	where := regexp.MustCompile(`metrics at (http://127\.0\.0\.1:\d+/metrics)\n`)
	var url string
	require.Eventually(t, func() bool {
		if match := where.FindStringSubmatch(errs.String()); match != nil {
			url = match[1]
		}
		return url != ""
	}, 30*time.Second, 10*time.Millisecond)
	var shown string
	require.Eventually(t, func() bool {
		shown = get(t, url)
		return strings.Contains(shown, "\nevalbox_programs_running 1\n") && strings.Contains(shown, `evalbox_jobs_total{verdict="passed"} 1`)
	}, time.Minute, 20*time.Millisecond)
	require.Contains(t, shown, `evalbox_runs_total{fault="none",status="exited"} 1`)
	require.Contains(t, shown, "\nevalbox_run_program_seconds_count 1\n")
	require.Contains(t, shown, `evalbox_run_step_seconds_count{step="remove"} 1`)
	require.NotContains(t, shown, "fast", "no name is a label")
	require.NoError(t, os.WriteFile("input/go", nil, 0o644))
	require.Equal(t, 0, <-ended, errs.String())
	_, err := http.Get(url) //nolint:bodyclose // there is no answer
	require.Error(t, err)
}

// get returns what a server shows; empty if it does not answer.
func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(text)
}
