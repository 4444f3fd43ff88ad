package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// scarce is how little free disk is worth a warning.
const scarce = 2 * policy.GiB

// checkState makes sure that records can be written.
func checkState(dir string) finding {
	f := finding{Check: "state folder", Verdict: verdictOK, Seen: dir}
	if err := tryWriting(dir); err != nil {
		f.Verdict, f.Seen = verdictFail, oneLine(err.Error())
		f.Mend = "make it writable, or choose another with --state-dir"
	}
	return f
}

// tryWriting makes a file in the folder and removes it. The folder is made for
// its owner alone, as the first run would do.
func tryWriting(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	_, err = file.WriteString("writable\n")
	return errors.Join(err, file.Close(), os.Remove(file.Name()))
}

// checkDisk looks at the room for records and for the engine.
func checkDisk(stateDir string, info engine.Info) finding {
	f := finding{Check: "disk", Verdict: verdictInfo, Seen: "the free room cannot be told here"}
	for _, place := range []struct{ what, dir string }{{"records", stateDir}, {"engine", info.RootDir}} {
		free, ok := freeBytes(place.dir)
		if !ok {
			continue
		}
		text := fmt.Sprintf("%s free for the %s", formatSize(free), place.what)
		if f.Verdict == verdictInfo {
			f.Verdict, f.Seen = verdictOK, text
		} else {
			f.Seen += ", " + text
		}
		if free < int64(scarce) {
			f.Verdict, f.Mend = verdictWarn, "delete old records with: sandbox rm; and unused images with: docker image prune"
		}
	}
	return f
}
