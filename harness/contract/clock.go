package contract

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// labelProbe labels the runs that only look at an image.
const labelProbe = "contract.probe"

// clockProbe prints the path of the library that fakes clocks.
const clockProbe = `for lib in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1 /usr/lib64/faketime/libfaketime.so.1; do
  if [ -f "$lib" ]; then
    echo "$lib"
    exit 0
  fi
done
exit 3`

// clockLibrary matches the output of the probe.
var clockLibrary = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\A(/usr/lib(?:64)?(?:/[A-Za-z0-9._-]+)*/libfaketime\.so\.1)\n\z`)
})

// fakeClock sets the clock of the program (DT-01). It refuses an image without libfaketime.
// The image is probed in a container of its own, before anything of the contract runs.
func (run *execution) fakeClock(ctx context.Context) error {
	if run.Effective.Clock.IsZero() {
		return nil
	}
	image := run.spec.Class.Image
	known, ok := run.clocks.Load(image.ID)
	if !ok {
		library, err := run.probeClock(ctx)
		if err != nil {
			return fmt.Errorf("looking for libfaketime in %s: %w", image.Reference, err)
		}
		run.clocks.Store(image.ID, library)
		known = library
	}
	library, _ := known.(string)
	if library == "" {
		run.refuse([]Violation{{Code: "DT-01", Field: "determinism.clock", Value: run.Contract.Determinism.Clock,
			Rule: fmt.Sprintf("needs libfaketime in the image, and %s has none", image.Reference), Hint: hintNoClock}})
		return nil
	}
	run.request.FakeClock = &sandbox.FakeClock{Library: library, At: run.Effective.Clock}
	var err error
	run.spec, err = run.box.Plan(ctx, run.request)
	return err
}

// probeClock looks for the library in the image of the contract, in a container without files
// of the host. It leaves no record.
func (run *execution) probeClock(ctx context.Context) (library string, err error) {
	shared := run.Request
	req := sandbox.Request{
		Labels: map[string]string{labelProbe: "clock", trial.LabelRole: "probe"},
		Image:  shared.Image, AllowUnlocked: shared.AllowUnlocked, Runtime: shared.Runtime, User: shared.User,
		Transfer: shared.Transfer, Command: []string{"sh", "-c", clockProbe},
		Limits: policy.Limits{Timeout: 30 * time.Second},
	}
	res, err := run.box.Run(ctx, req, sandbox.Hooks{Kill: run.job.Hooks.Kill})
	if res != nil {
		err = errors.Join(err, run.box.Store().Remove(res.ID))
	}
	if err != nil {
		return "", err
	}
	switch found := clockLibrary().FindStringSubmatch(res.Stdout); {
	case res.Status == result.StatusExited && res.ExitCode == 0 && found != nil:
		return found[1], nil
	case res.Status == result.StatusExited && res.ExitCode == 3, res.Status == result.StatusStartFailed && res.ExitCode == 127:
		return "", nil
	}
	return "", fmt.Errorf("the probe ended unexpectedly: %s", res.Explanation)
}
