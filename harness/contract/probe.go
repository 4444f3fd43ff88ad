package contract

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// labelProbe is a label of runs that only look at an image.
const labelProbe = "contract.probe"

// probe runs a script of ours in a container of the contract's image, which has no files
// of anybody, and leaves no record.
func (run *execution) probe(ctx context.Context, what, script string, args ...string) (res *result.Result, err error) {
	common := run.Request
	req := sandbox.Request{
		ID: record.NewID(run.now()), Labels: map[string]string{labelProbe: what},
		Image: common.Image, AllowUnlocked: common.AllowUnlocked, Runtime: common.Runtime, User: common.User,
		Transfer: common.Transfer, Command: append([]string{"sh", "-c", script, "probe"}, args...),
		Limits: policy.Limits{Timeout: 30 * time.Second},
	}
	res, err = run.Runner.Run(ctx, req, sandbox.Hooks{Kill: run.Hooks.Kill})
	if run.Store != nil && res != nil {
		err = errors.Join(err, run.Store.Remove(req.ID))
	}
	return res, err
}

// commandProbe looks for a command as execvp(3) does.
const commandProbe = `case $1 in
*/*) [ -f "$1" ] && [ -x "$1" ] && exit 0 ;;
*)
  IFS=:
  for dir in $PATH; do
    [ -f "$dir/$1" ] && [ -x "$dir/$1" ] && exit 0
  done
  ;;
esac
exit 3`

// mayHaveRun doubts that a program did not start. All that the sandbox has to go by is
// a line of the container's init, which the program may print as well; so it is believed
// only if the command is not there to be executed.
func (run *execution) mayHaveRun(ctx context.Context, res *result.Result) bool {
	if res.Status != result.StatusStartFailed || res.ExitCode != 126 && res.ExitCode != 127 {
		return false
	}
	if res.Network != nil && res.Network.Requests > 0 || len(res.Outputs)+len(res.OutputsSkipped) > 0 {
		return true
	}
	for _, tree := range res.Trees {
		if changes(res, tree.Target)+len(tree.Skipped) > 0 {
			return true
		}
	}
	command := run.contract.Inputs.Command
	if !filepath.IsAbs(command) && strings.Contains(command, "/") {
		command = filepath.Join(run.resolved.WorkDir, command)
	}
	if fsx.Within(command, rootTarget) {
		info, err := os.Stat(filepath.Join(run.resolved.Root, strings.TrimPrefix(command, rootTarget)))
		return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
	}
	found, err := run.probe(context.WithoutCancel(ctx), "command", commandProbe, command)
	if err != nil || found.Status != result.StatusExited || found.ExitCode != 0 && found.ExitCode != 3 {
		run.outcome.Warnings = append(run.outcome.Warnings, "whether the image has the command could not be found out: that it was not started is what the container said")
		return false
	}
	return found.ExitCode == 0
}
