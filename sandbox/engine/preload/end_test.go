//go:build linux

package preload

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEndIsShort: the interpreter leaves its objects to the machine if nothing of the program has an
// effect at its end, and only then.
func TestEndIsShort(t *testing.T) {
	t.Parallel()
	_, class, _ := strings.Cut(string(bootstrap), "class Exit:")
	class, _, _ = strings.Cut(class, "\ndef command(")
	const begin = `
import atexit, gc, sys
before = gc.get_freeze_count() # not 0 in Python 3.12
atexit.register(lambda: print("short" if gc.get_freeze_count() > before + 100 else "whole"))
import json, os, weakref, tempfile, collections.abc
def say(): pass
class Exit:`
	const note = `
Exit().note(set(sys.modules))
`
	for program, want := range map[string]string{
		"pass": "short",
		"class A: pass\na = A(); a.me = a; r = weakref.ref(a); w = weakref.WeakSet([a]); isinstance(a, collections.abc.Sized)": "short",
		"with open('/dev/null') as f: f.read()":                      "short",
		"g = (x for x in 'ab'); list(g)":                             "short",
		"import io; b = io.BytesIO()":                                "short",
		"import this_is_missing":                                     "short",
		"f = open('/dev/null')":                                      "whole",
		"g = (x for x in 'ab'); next(g)":                             "whole",
		"class A:\n  def __del__(self): pass":                        "whole",
		"class A: pass\na = A(); r = weakref.ref(a, lambda _: None)": "whole",
		"d = tempfile.TemporaryFile()":                               "whole",
		"import sqlite3":                                             "whole",
		"gc.callbacks.append(lambda *_: None)":                       "whole",
		"import threading, time\nthreading.Thread(target=time.sleep, args=[100], daemon=True).start()": "whole",
		"x = [[] for _ in range(1000000)]":                        "whole",
		"import builtins; builtins.map = lambda *_: print('map')": "whole",
		"class D(dict): pass\nsys.modules = D(sys.modules)":       "whole",
		"sys.modules['other'] = 1":                                "whole",
	} {
		out, _ := exec.CommandContext(t.Context(), "python3", "-c", begin+class+note+program).Output() // one program fails
		require.Equal(t, want, strings.TrimSpace(string(out)), program)
	}
}
