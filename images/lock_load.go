package images

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/evalbox/evalbox/internal/strict"
)

// lockDocument is the wire form of a lock.
type lockDocument struct {
	Schema string                   `yaml:"schema"`
	Images map[string]lockedPackage `yaml:"images"`
}

// lockedPackage is an entry with its list of packages, as text: a run that only
// compares IDs then reads one string, not hundreds of nodes.
type lockedPackage struct {
	LockEntry `yaml:",inline"`

	PackagesSHA256 string `yaml:"packages_sha256"`
	Packages       string `yaml:"packages"`
}

// maxLockBytes bounds a lock file.
const maxLockBytes = 32 << 20

// ReadLock reads the lock in a file. The error of a file that is not there
// satisfies errors.Is with fs.ErrNotExist.
func ReadLock(path string) (Lock, error) {
	file, err := os.Open(path)
	if err != nil {
		return Lock{}, &LockFileError{path, err}
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() {
		return Lock{}, &LockFileError{path, errors.New("is not a regular file")}
	}
	data, err := io.ReadAll(io.LimitReader(file, maxLockBytes+1))
	if err == nil && len(data) > maxLockBytes {
		err = fmt.Errorf("is larger than %d bytes", maxLockBytes)
	}
	if err != nil {
		return Lock{}, &LockFileError{path, err}
	}
	l, err := LoadLock(data, path)
	if err != nil {
		return Lock{}, &badLockError{err}
	}
	return l, nil
}

// A badLockError is a lock file that was read and is wrong. Its text names the
// file and the place.
type badLockError struct{ error }

func (e *badLockError) Unwrap() error { return e.error }

// Hint says what to do about it.
func (e *badLockError) Hint() string {
	return "take the file from where it was right, or move it away and lock anew: sandbox image lock NAME"
}

// LoadLock reads a lock. Source is the name of the file in messages. The format
// is strict: an unknown key, a key given twice, a second document, and a list of
// packages that its hash does not fit are errors. The error joins every problem
// that was found.
func LoadLock(data []byte, source string) (Lock, error) {
	var doc lockDocument
	if problems := strict.Decode(data, &doc, strict.Options{Schema: LockSchema, Lenient: true}); len(problems) > 0 {
		return Lock{}, strict.Join(source, problems)
	}
	l := Lock{Source: source, entries: map[string]LockEntry{}}
	var errs []error
	for name, wire := range doc.Images {
		e, err := wire.entry(source, name)
		errs = append(errs, err)
		l.entries[name] = e
	}
	return l, errors.Join(errs...)
}

// entry checks what was read. The message of every problem names the key.
func (w lockedPackage) entry(source, name string) (LockEntry, error) {
	e := w.LockEntry
	e.Name = name
	var errs []error
	problem := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: images.%.200s.%s: %s", source, name, key, fmt.Sprintf(format, args...)))
	}
	for _, d := range []struct{ key, have string }{{"id", e.ID}, {"content", e.Content}} {
		if hex, ok := strings.CutPrefix(d.have, "sha256:"); !ok || !sha256Pattern.MatchString(hex) {
			problem(d.key, "must be sha256: and 64 lower-case hexadecimal digits, have %.100q", d.have)
		}
	}
	for _, t := range []struct{ key, have string }{
		{"reference", e.Reference}, {"platform", e.Platform}, {"base", e.Base}, {"base_digest", e.BaseDigest},
	} {
		if t.have == "" {
			problem(t.key, "must not be empty")
		}
	}
	if have := sha256Hex(w.Packages); have != w.PackagesSHA256 {
		problem("packages_sha256", "the text of packages has %s, have %.100q: the file was changed by hand", have, w.PackagesSHA256)
	}
	var err error
	if e.Packages, err = parsePackages(w.Packages); err != nil {
		problem("packages", "%v", err)
	}
	return e, errors.Join(errs...)
}

// A LockFileError is a lock file that cannot be read or written.
type LockFileError struct {
	Path string
	Err  error
}

func (e *LockFileError) Error() string {
	reason := e.Err
	if pathErr, ok := errors.AsType[*fs.PathError](reason); ok {
		reason = pathErr.Err // the path is named already
	}
	return fmt.Sprintf("image lock %s: %v", e.Path, reason)
}

func (e *LockFileError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *LockFileError) Hint() string {
	if errors.Is(e.Err, fs.ErrNotExist) {
		return "lock an image with: sandbox image lock NAME; or leave --lock out"
	}
	return "name another file with --lock"
}
