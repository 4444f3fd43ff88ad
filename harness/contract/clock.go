package contract

import (
	"context"
	"fmt"
	"regexp"
	"sync"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// clockProbe prints where an image has the library that fakes clocks.
const clockProbe = `for lib in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1 /usr/lib64/faketime/libfaketime.so.1; do
  if [ -f "$lib" ]; then
    echo "$lib"
    exit 0
  fi
done
exit 3`

// clockLibrary is what the probe prints.
var clockLibrary = regexp.MustCompile(`\A(/usr/lib(?:64)?(?:/[A-Za-z0-9._-]+)*/libfaketime\.so\.1)\n\z`)

// A clockCache knows which images have libfaketime, by their IDs: the path of it, or
// nothing. Its zero value is ready.
type clockCache struct {
	mu    sync.Mutex
	known map[string]string
}

// findClock looks for the library that fakes the clock before anything of the contract
// is run: what its program prints says nothing about the image. The rule says that it
// cannot be had; an error that it could not be found out.
func (run *execution) findClock(ctx context.Context) (rule string, err error) {
	if run.effective.Clock.IsZero() {
		return "", nil
	}
	image := run.spec.Class.Image
	cache := &run.clocks
	cache.mu.Lock()
	defer cache.mu.Unlock()
	library, known := cache.known[image.ID]
	if !known {
		if library, err = run.probeClock(ctx); err != nil {
			return "", fmt.Errorf("looking for libfaketime in %s: %w", image.Reference, err)
		}
		if cache.known == nil {
			cache.known = map[string]string{}
		}
		cache.known[image.ID] = library
	}
	if library == "" {
		return fmt.Sprintf("needs libfaketime in the image, and %s has none", image.Reference), nil
	}
	run.request.FakeClock = &sandbox.FakeClock{Library: library, At: run.effective.Clock}
	return "", nil
}

// probeClock asks the image for the library.
func (run *execution) probeClock(ctx context.Context) (library string, err error) {
	res, err := run.probe(ctx, "clock", clockProbe)
	if err != nil {
		return "", err
	}
	switch found := clockLibrary.FindStringSubmatch(res.Stdout); {
	case res.Status == result.StatusExited && res.ExitCode == 0 && found != nil:
		return found[1], nil
	case res.Status == result.StatusExited && res.ExitCode == 3, res.Status == result.StatusStartFailed && res.ExitCode == 127:
		return "", nil
	}
	return "", fmt.Errorf("the probe ended otherwise than it should: %s", res.Explanation)
}
