package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

func TestHints(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.ENOSPC}
	daemon := errors.New("dial unix: no such file")
	tests := map[string]struct {
		err  error
		want []string
	}{
		"nothing known":    {errors.New("odd"), nil},
		"engine down":      {fmt.Errorf("asking the engine: %w", fmt.Errorf("%w: %w", sandbox.ErrEngineUnavailable, daemon)), []string{"is the engine running?"}},
		"no image":         {&images.NotFoundError{Ref: "nosuch"}, []string{"sandbox image list"}},
		"no space":         {fmt.Errorf("state directory: %w", record.ErrNoSpace), []string{"sandbox prune --older-than 7d"}},
		"damaged version":  {&record.VersionError{Dir: "/a b", Damaged: true}, []string{`write the file again: echo '{"schema":"evalbox/state/v1"}' > '/a b/state.json'`}},
		"other version":    {&record.VersionError{Records: []string{"/a b/runs", "/c/state.json"}}, []string{"rm -rf '/a b/runs' /c/state.json; then"}},
		"no record":        {fmt.Errorf("run \"x\": %w", record.ErrNoRecord), []string{"sandbox ls"}},
		"busy":             {fmt.Errorf("final: %w", sandbox.ErrBusy), []string{"sandbox ps"}},
		"adopted too soon": {fmt.Errorf("final: %w", sandbox.ErrStillRuns), []string{"choose another --final"}},
		"a secret":         {&policy.FieldError{Field: "secret"}, []string{"--secret NAME=FILE"}},
		"network":          {&policy.FieldError{Field: "network", Hint: "permit it"}, []string{"permit it"}},
		"network of all":   {&policy.FieldError{Field: "network", Rule: "shares a network namespace"}, []string{"leave --network out"}},
		"an ID":            {&policy.FieldError{Field: "id"}, []string{"see the IDs of all runs"}},
		"GPUs":             {&gpu.BusyError{Sharing: true}, []string{"--gpu-wait 1h; or share them with --gpu-share"}},
		"GPUs, longer":     {&gpu.BusyError{Waited: time.Hour}, []string{"wait longer for them with --gpu-wait"}},
		"no network":       {&policy.FieldError{Field: "network", Rule: "the engine does not have it; it has lab"}, []string{"docker network ls"}},
		"API version":      {fmt.Errorf("asking: %w", &dockerhost.Error{Kind: dockerhost.KindVersion, Advice: "unset DOCKER_API_VERSION"}), []string{"unset DOCKER_API_VERSION"}},
		"far permission":   {&dockerhost.Error{Kind: dockerhost.KindPermission, Advice: "on the engine's machine"}, []string{"on the engine's machine"}},
		"other machine":    {&policy.FieldError{Field: "transfer", Rule: "the engine does not see"}, []string{"leave --transfer out: the files"}},
		"odd transfer":     {&policy.FieldError{Field: "transfer", Hint: "leave it"}, []string{"leave it"}},
		"name taken":       {fmt.Errorf("creating: %w", sandbox.ErrNameTaken), []string{"another --id"}},
		"output full":      {ReaderGone(full), []string{"make room there"}},
		"result lost":      {resultLost(ReaderGone(full)), []string{"in the record"}},
		"limit":            {&policy.FieldError{Field: "memory"}, []string{"sandbox config"}},
		"two limits":       {errors.Join(&policy.FieldError{Field: "memory"}, &policy.FieldError{Field: "cpus"}), []string{"sandbox config"}},
		"two problems":     {fmt.Errorf("a: %w", errors.Join(&policy.FieldError{Field: "memory"})), []string{"sandbox config"}},
		"joined problems":  {errors.Join(record.ErrNoRecord, sandbox.ErrBusy), []string{"sandbox ls", "sandbox ps"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := new(App).Hints(test.err)
			require.Len(t, got, len(test.want))
			for i, want := range test.want {
				require.Contains(t, got[i], want)
			}
		})
	}
}

// Commands of hints are about the engine, the lock and the catalog of this command.
func TestRepeatFlags(t *testing.T) {
	a := &App{Given: settings.Flags{
		"lock": {Text: "other $1.lock", Name: "--lock"}, "host": {Text: "ssh://me:secret@lab", Name: "--host"},
		"memory": {Text: "1g", Name: "--memory"},
	}}
	const host = "--host ssh://me:xxxxx@lab"
	for hint, want := range map[string]string{
		"compare with: sandbox image verify debian": "compare with: sandbox " + host + " --lock 'other $1.lock' image verify debian",
		"or docker pull python; docker context ls":  "or docker " + host + " pull python; docker context ls",
		"start one with: sandbox pool start":        "start one with: sandbox " + host + " --lock 'other $1.lock' pool start",
		"run 'sandbox run --help'":                  "run 'sandbox run --help'",
		"add yourself to the docker group":          "add yourself to the docker group",
	} {
		require.Equal(t, want, a.RepeatFlags(hint))
		require.Equal(t, hint, (&App{}).RepeatFlags(hint))
	}
	a = &App{ConfigFile: "x.yaml"}
	require.Equal(t, "sandbox --config x.yaml ls", a.RepeatFlags("sandbox ls"))
}

// An error is one line for each thing that is wrong, and cannot drive a terminal.
func TestReport(t *testing.T) {
	var out bytes.Buffer
	a := &App{Streams: Streams{Err: &out}}
	a.report(errors.Join(
		&policy.FieldError{Field: "memory", Value: "1B", Rule: "must be at least 6MiB"},
		errors.New("sandbox: script \x1b[2J: is empty"),
	))
	require.Equal(t, "sandbox: memory 1B: must be at least 6MiB\n"+
		"sandbox: script ^[[2J: is empty\n"+
		"sandbox: hint: see the limits, and where they come from, with: sandbox config\n", out.String())
}
