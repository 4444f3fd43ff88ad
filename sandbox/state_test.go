//go:build linux

package sandbox

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
)

// TestStateDirectory: runs write the files and the fields of sandbox/record/testdata/state. Whoever
// changes them gives record.StateSchema another number or, if old records can still be read, writes
// the directory anew with -update.
func TestStateDirectory(t *testing.T) {
	base := t.TempDir()
	state, script := filepath.Join(base, "state"), filepath.Join(base, "train.py")
	treetest.Write(t, base, map[string]string{"train.py": "print('training')\n"})
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		switch p.Job.RunID {
		case "finished":
			_ = os.WriteFile(p.Final("model.bin"), []byte("weights\n"), 0o600)
			_ = os.Mkdir(p.Final("plots"), 0o700)
			_ = os.WriteFile(p.Final("plots/loss.csv"), []byte("epoch,loss\n1,0.25\n"), 0o600)
			p.Print("Final Validation Performance: 0.75\n")
			return 0
		case "failed":
			p.PrintErr("Traceback (most recent call last):\n  File \"train.py\", line 1, in <module>\nValueError: no data\n")
			return 1
		}
		p.Print("epoch 1\n")
		return endsOnTerm(p)
	})
	r := newFakeRunner(t, fake, WithStateDir(state))
	request := func(id string) Request {
		return Request{ID: id, Name: "run-" + id, Labels: map[string]string{"team": "blue"}, Image: "debian", Script: script}
	}
	for _, id := range []string{"finished", "failed", "timed_out"} {
		req := request(id)
		if id == "timed_out" {
			req.Limits.Timeout = 100 * time.Millisecond
		}
		res, err := r.Run(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, id == "timed_out", res.Status == result.StatusTimedOut, res.Explanation)
	}
	ctx, cancel := context.WithCancel(t.Context())
	running, ended := make(chan struct{}), make(chan struct{})
	r.at = func(step string, _ *run) {
		if step == "accepted" {
			close(running)
		}
	}
	go func() {
		defer close(ended)
		_, _ = r.Run(ctx, request("running"))
	}()
	<-running
	req := request("lost")
	req.Final = filepath.Join(base, "out")
	dieAt(t, enginetest.NewFake(endsOnTerm), "accepted", req, WithStateDir(state))

	got := filesOf(t, state)
	cancel()
	<-ended
	dir := "record/testdata/state"
	if *treetest.Update {
		require.NoError(t, os.RemoveAll(dir))
		for name, text := range got {
			got[name] = ofAnotherMachine(name, strings.ReplaceAll(text, base, "/srv/example"))
		}
		treetest.Write(t, dir, got)
	}
	want, form := formOf(t, filesOf(t, dir)), formOf(t, got)
	require.Empty(t, slices.DeleteFunc(slices.Sorted(maps.Keys(form)), func(name string) bool { return want[name] }), "is new")
	if treetest.IsRoot() { // who need not give ./final to another user notes less
		require.Empty(t, slices.DeleteFunc(slices.Sorted(maps.Keys(want)), func(name string) bool { return form[name] }), "is missing")
	}
}

// ofAnotherMachine is a file of a record as if another machine had written it.
func ofAnotherMachine(name, text string) string {
	const stranger = "9a1d7c52-0f6e-4c58-9c1b-2f4b6f3e8d10/4026531836/4242/1718190"
	for _, by := range []owner.Owner{owner.This(), recordtest.DeadOwner()} {
		text = strings.ReplaceAll(text, by.String(), stranger)
	}
	text = regexp.MustCompile(`"00[0-9a-f]{62}"`).ReplaceAllString(text, `"00`+strings.Repeat("5a", 31)+`"`)
	// Nobody can see the owners: a run counts as lost after its deadline.
	text = regexp.MustCompile(`"20[0-9-]*T[0-9]*:`).ReplaceAllString(text, `"2024-01-02T15:`)
	if name == "runs/running/journal.json" {
		text = regexp.MustCompile(`"deadline": "[^"]*"`).ReplaceAllString(text, `"deadline": "2124-01-02T15:04:05Z"`)
	}
	return text
}

// filesOf reads the files of a state directory, without locks and reserves, without the files that exist
// only during a run, and without measurements, of which a short run may have none.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		passing := strings.HasPrefix(name, "locks/") || entry.Name() == record.ReserveFile || entry.Name() == metrics.File
		if entry.Name() == record.AccountsDir {
			return fs.SkipDir
		}
		if err != nil || passing || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = string(text)
		return err
	}))
	return files
}

// formOf has the names of files, and behind each those of its fields in JSON.
func formOf(t *testing.T, files map[string]string) map[string]bool {
	t.Helper()
	form := map[string]bool{}
	for name, text := range files {
		form[name] = true
		if filepath.Ext(name) == ".json" {
			var document any
			require.NoError(t, json.Unmarshal([]byte(text), &document))
			addFields(document, name+" ", form)
		}
	}
	return form
}

func addFields(value any, path string, fields map[string]bool) {
	switch value := value.(type) {
	case map[string]any:
		for name, below := range value {
			fields[path+name] = true
			addFields(below, path+name+".", fields)
		}
	case []any:
		for _, below := range value {
			addFields(below, path, fields)
		}
	}
}
