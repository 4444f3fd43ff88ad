package rung

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// maxDocument bounds a file that is read whole, in bytes.
const maxDocument = 16 << 20

// errOutside is a name that leads out of the directory.
var errOutside = errors.New("is not a path below the evidence directory")

// openFile opens a regular file. No link is followed, on the way to it either.
func openFile(dir fs.FS, name string) (io.ReadCloser, error) {
	if !fs.ValidPath(name) || name == "." || strings.Contains(name, `\`) {
		return nil, errOutside
	}
	for i := range name {
		if name[i] != '/' {
			continue
		}
		info, err := fs.Lstat(dir, name[:i])
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("is behind %s, which is %s", name[:i], fsx.Kind(info.Mode()))
		}
	}
	info, err := fs.Lstat(dir, name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &fsx.NotRegularError{Mode: info.Mode().Type()}
	}
	return dir.Open(name)
}

func readFile(dir fs.FS, name string) ([]byte, error) {
	file, err := openFile(dir, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = fmt.Errorf("has more than %d bytes", maxDocument)
	}
	return text, err
}

func hashFile(dir fs.FS, name string) (string, error) {
	file, err := openFile(dir, name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// object is a JSON object whose values are as they were written.
type object map[string]json.RawMessage

func readObject(dir fs.FS, name string) (object, error) {
	text, err := readFile(dir, name)
	if err != nil {
		return nil, err
	}
	return parseObject(text)
}

func parseObject(text []byte) (object, error) {
	var o object
	if err := evidence.Decode(text, &o); err != nil {
		return nil, err
	}
	return o, nil
}

// has says that all keys are there.
func (o object) has(keys ...string) (missing string, ok bool) {
	for _, key := range keys {
		if _, there := o[key]; !there {
			return key, false
		}
	}
	return "", true
}

// either is the first of some names for the same thing that is there.
func (o object) either(names ...string) string {
	for _, name := range names {
		if _, there := o[name]; there {
			return name
		}
	}
	return names[0]
}

// as is a value, if it has exactly the type: null is none, nor is a number that is only
// equal to one.
func as[T any](o object, key string) (T, bool) {
	var value T
	raw, there := o[key]
	if !there || evidence.Decode(raw, &value) != nil {
		var none T
		return none, false
	}
	return value, true
}
