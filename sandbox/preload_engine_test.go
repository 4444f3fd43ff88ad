//go:build linux

package sandbox_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// preloadCase is one program of testdata/preload.txtar.
type preloadCase struct {
	req    sandbox.Request
	stdin  *string
	unused string
}

// readPreloadCase reads the lines that say how a program runs, and writes its files.
func readPreloadCase(t *testing.T, file txtar.File, input string) preloadCase {
	t.Helper()
	c := preloadCase{req: sandbox.Request{
		Input: input, Preload: []string{"json", "decimal", "logging", "multiprocessing.pool", "threading"},
		Limits: policy.Limits{Memory: 512 * policy.MiB, CPUs: 1, Disk: policy.MiB, Timeout: policy.Seconds(60), Grace: policy.Seconds(1)},
	}}
	text := file.Data
	for bytes.HasPrefix(text, []byte("#: ")) {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		key, value, _ := strings.Cut(string(line[3:]), " ")
		var err error
		switch key {
		case "args":
			err = json.Unmarshal([]byte(value), &c.req.Args)
		case "command":
			err = json.Unmarshal([]byte(value), &c.req.Command)
		case "env":
			err = json.Unmarshal([]byte(value), &c.req.Env)
		case "preload":
			c.req.Preload = nil
			err = json.Unmarshal([]byte(value), &c.req.Preload)
		case "stdin":
			err = json.Unmarshal([]byte(value), &c.stdin)
		case "timeout":
			var s float64
			err = json.Unmarshal([]byte(value), &s)
			c.req.Limits.Timeout = policy.Seconds(s)
		case "unused":
			c.unused = value
		default:
			t.Fatalf("%s: unknown key %q", file.Name, key)
		}
		require.NoError(t, err, "%s: %s", file.Name, line)
	}
	switch _, kind, _ := strings.Cut(file.Name, ".py."); kind {
	case "latin1":
		text = bytes.ReplaceAll(text, []byte("é"), []byte{0xe9})
	case "bom":
		text = append([]byte("\xef\xbb\xbf"), bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))...)
	case "null":
		text = append(text, 0)
	}
	if c.req.Command == nil {
		name, _, _ := strings.Cut(filepath.Base(file.Name), ".")
		if filepath.Dir(file.Name) != "own" {
			name = "p_" + name // not the name of a module
		}
		c.req.Script = filepath.Join(t.TempDir(), name+".py")
		require.NoError(t, os.WriteFile(c.req.Script, text, 0o644))
	}
	return c
}

// volatileFields differ between two runs of one program.
var volatileFields = []string{"id", "started_at", "finished_at", "duration_seconds", "setup_seconds", "teardown_seconds", "resources", "metrics", "preload", "deadline"}

var (
	hexAddress = regexp.MustCompile(`0x[0-9a-f]{6,}`)
	// Each run has a user of its own. A letter may stand before it: the text is JSON, with \t for a tab.
	ownUser = regexp.MustCompile(`(\D)70\d{3}\b`)
)

// comparable is a result without what differs between two runs of one program.
func comparable(t *testing.T, res *result.Result) map[string]any {
	t.Helper()
	text, err := json.Marshal(res)
	require.NoError(t, err)
	text = ownUser.ReplaceAll(hexAddress.ReplaceAll(text, []byte("0xADDRESS")), []byte("${1}USER"))
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	for _, name := range volatileFields {
		delete(fields, name)
	}
	if enforced, ok := fields["enforced"].(map[string]any); ok {
		delete(enforced, "transfer") // each run finds out for itself
	}
	return fields
}

// TestEnginePreloadIsInvisible runs every program with and without a waiting interpreter, with -short every eighth: the
// results are the same, byte by byte.
func TestEnginePreloadIsInvisible(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/preload.txtar")
	require.NoError(t, err)
	input := t.TempDir()
	var programs []txtar.File
	for _, file := range archive.Files {
		name, isInput := strings.CutPrefix(file.Name, "input/")
		if !isInput {
			programs = append(programs, file)
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Join(input, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(input, name), file.Data, 0o644))
	}
	require.GreaterOrEqual(t, len(programs), 80)
	r := newRunner(t)
	slots := make(chan struct{}, 4)
	t.Run("programs", func(t *testing.T) {
		for n, file := range programs {
			if testing.Short() && n%8 != 0 {
				continue
			}
			t.Run(file.Name, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				c := readPreloadCase(t, file, input)
				once := func(modules []string) *result.Result {
					req, opts := c.req, []sandbox.RunOption{}
					req.Preload = modules
					if c.stdin != nil {
						opts = append(opts, sandbox.IO{Stdin: strings.NewReader(*c.stdin)})
					}
					return run(t, r, req, opts...)
				}
				with, without := once(c.req.Preload), once(nil)
				require.Nil(t, without.Preload)
				require.Equal(t, c.req.Preload, with.Preload.Modules)
				if c.unused == "" {
					require.Empty(t, with.Preload.Reason)
				} else {
					require.Contains(t, with.Preload.Reason, c.unused)
					require.Len(t, with.Warnings, len(without.Warnings)+1)
					with.Warnings = without.Warnings
				}
				require.Equal(t, c.unused == "", with.Preload.Used)
				require.Equal(t, comparable(t, without), comparable(t, with))
			})
		}
	})
}
