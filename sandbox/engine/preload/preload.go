// Package preload starts the waiting interpreter of a container: a Python that has imported the
// modules of a class before the job arrives, and becomes the program. sitecustomize.py is the
// side in the container, the Wait of package wire the protocol with init.
package preload

import (
	"archive/zip"
	"bytes"
	_ "embed" // for the bootstrap
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Patience is how long the imports may take. Then the program is started without them.
const Patience = time.Minute

// waits is the command of a waiting interpreter. It never runs. Engines recognize a container
// without a job by it.
const waits = "evalbox: this interpreter waits for its program"

// bootstrap is imported by the interpreter instead of the sitecustomize of its image, before it
// runs its command.
//
//go:embed sitecustomize.py
var bootstrap []byte

// archive is the bootstrap in a form that Python imports from a file without a directory.
var archive = sync.OnceValues(func() ([]byte, error) {
	var buffer bytes.Buffer
	z := zip.NewWriter(&buffer)
	// Not compressed: an image may lack zlib.
	w, err := z.CreateHeader(&zip.FileHeader{Name: "sitecustomize.py", Method: zip.Store})
	if err == nil {
		_, err = w.Write(bootstrap)
	}
	if err == nil {
		err = z.Close()
	}
	return buffer.Bytes(), err
})

// Wait returns the waiting interpreter of a class. ok is false for a class without one.
func Wait(class spec.Class, oomScore int) (wait wire.Wait, ok bool, err error) {
	if !class.Preload.Fits() {
		return wire.Wait{}, false, nil
	}
	file, err := archive()
	if err != nil {
		return wire.Wait{}, false, fmt.Errorf("packing the bootstrap of a waiting interpreter: %w", err)
	}
	p := class.Preload
	return wire.Wait{
		Args: append(append([]string{}, p.Interpreter...), "-c", waits, strings.Join(p.Modules, ",")),
		Env:  append(append([]string{}, p.Env...), fmt.Sprintf("PYTHONPATH=/proc/self/fd/%d", wire.WaiterFile)),
		Dir:  class.WorkDir, Patience: Patience, OOMScoreAdj: oomScore, NoFork: p.NoFork, Stdin: p.Stdin, File: file,
	}, true, nil
}

// IsWaiting reports whether the title of a process is that of a waiting interpreter.
func IsWaiting(title string) bool { return strings.Contains(title, waits) }
