package sandbox

import (
	"maps"
	"time"
)

// FakeClock is a clock that begins at a fixed time when the container starts, and goes
// on (DT-01). It holds for programs that use the dynamic loader.
type FakeClock struct {
	// Library is the path of libfaketime inside the image. The loader goes on without
	// a library that is not there: whoever asks for a clock looks first.
	Library string `json:"library"`
	// At is the time at the start, in whole seconds.
	At time.Time `json:"at"`
}

// env is an environment with what the library reads. It is set for the whole container,
// so that the program is started as without it, and one that cannot be is told alike.
func (c *FakeClock) env(env map[string]string) map[string]string {
	if c == nil {
		return env
	}
	all := map[string]string{}
	maps.Copy(all, env)
	maps.Copy(all, map[string]string{
		"LD_PRELOAD": c.Library, "FAKETIME": c.At.UTC().Format("@2006-01-02 15:04:05"),
		"FAKETIME_DONT_RESET": "1", "NO_FAKE_STAT": "1",
	})
	return all
}
