package main

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// classSetup is what the results of runs in the sandbox depend on besides the sweep.
// Limits are not among it: a run that reached none ended as it would have under others.
func classSetup(class spec.Class, gpus string) map[string]string {
	return map[string]string{
		"image": class.Image.ID, "network": class.Network, "user": class.User, "runtime": class.Runtime, "gpus": gpus,
	}
}

// addSetup adds what the flags say of all runs. Values of variables may be secret, so
// that only hashes of them are kept. What is demanded of artifacts is not among it: a
// sweep that goes on judges again what it keeps.
func (f *sweepFlags) addSetup(setup, env map[string]string) error {
	setup["exec"], setup["engine"], setup["root"] = f.exec, f.engine, ""
	if f.root != "" || f.engine == invoke.EngineHost {
		var err error
		if setup["root"], err = filepath.Abs(f.root); err != nil { // on the host the tool starts here without one
			return err
		}
	}
	for name, value := range env {
		sum := sha256.Sum256([]byte(name + "=" + value))
		setup[sweep.SetupHashed+name] = hex.EncodeToString(sum[:])
	}
	return nil
}
