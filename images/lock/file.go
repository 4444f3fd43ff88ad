package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/opencontainers/go-digest"
	"gopkg.in/yaml.v3"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/strict"
)

// document is the wire form of a lock.
type document struct {
	Schema string               `yaml:"schema"`
	Images map[string]wireEntry `yaml:"images"`
}

// wireEntry is an entry with its list of packages, as text: a run that only compares IDs
// then reads one string, not hundreds of nodes.
type wireEntry struct {
	Entry `yaml:",inline"`

	PackagesSHA256 string `yaml:"packages_sha256"`
	Packages       string `yaml:"packages"`
}

// header begins every lock file.
const header = `# What each image was when it was locked. Runs refuse another one.
# Written by: sandbox image lock. To be kept with the project, not edited by hand.
`

// Encode returns the wire form of the lock. The same lock gives the same bytes.
func (l Lock) Encode() ([]byte, error) {
	doc := document{Schema: SchemaV1, Images: map[string]wireEntry{}}
	for name, e := range l.entries {
		doc.Images[name] = wireEntry{Entry: e, PackagesSHA256: e.Packages.SHA256(), Packages: e.Packages.Text()}
	}
	text := bytes.NewBufferString(header)
	encoder := yaml.NewEncoder(text)
	encoder.SetIndent(2)
	if err := encoder.Encode(doc); err != nil { // strings, numbers and a time
		return nil, fmt.Errorf("encoding the image lock: %w", err)
	}
	return text.Bytes(), encoder.Close()
}

// MaxBytes bounds a lock file.
const MaxBytes = 32 << 20

// Read reads the lock in a file. The error of a file that is not there satisfies errors.Is
// with fs.ErrNotExist.
func Read(path string) (Lock, error) {
	file, err := fsx.Open(path)
	if _, ok := errors.AsType[*fsx.NotRegularError](err); ok {
		err = errors.New("is not a regular file")
	}
	if err != nil {
		return Lock{}, fileError(path, err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err == nil && len(data) > MaxBytes {
		err = fmt.Errorf("is larger than %d bytes", MaxBytes)
	}
	if err != nil {
		return Lock{}, fileError(path, err)
	}
	l, err := Parse(data, path)
	if err != nil {
		return Lock{}, images.WithHint(err, "take the file from where it was right, or move it away and lock anew: sandbox image lock NAME")
	}
	return l, nil
}

// fileError is a lock file that cannot be read or written.
func fileError(path string, err error) error {
	hint := "name another file with --lock"
	if errors.Is(err, fs.ErrNotExist) {
		hint = "lock an image with: sandbox image lock NAME; or leave --lock out"
	}
	return images.WithHint(fmt.Errorf("image lock %s: %w", path, fsx.Cause(err)), hint)
}

// Parse reads a lock. Source is the name of the file in messages. The format is strict: an
// unknown key, a key given twice, a second document, and a list of packages that its hash
// does not fit are errors. The error joins every problem that was found.
func Parse(data []byte, source string) (Lock, error) {
	var doc document
	if problems := strict.Decode(data, &doc, strict.Options{Schema: SchemaV1, Lenient: true}); len(problems) > 0 {
		return Lock{}, strict.Join(source, problems)
	}
	l := Lock{Source: source, entries: map[string]Entry{}}
	var errs []error
	for name, wire := range doc.Images {
		e, err := wire.entry(source, name)
		errs = append(errs, err)
		l.entries[name] = e
	}
	return l, errors.Join(errs...)
}

var idPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })

// entry checks a decoded entry. The message of every problem names the key.
func (w wireEntry) entry(source, name string) (Entry, error) {
	e := w.Entry
	e.Name = name
	var errs []error
	problem := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: images.%.200s.%s: %s", source, name, key, fmt.Sprintf(format, args...)))
	}
	for _, d := range []struct{ key, have string }{{"id", e.ID}, {"content", e.Content}} {
		if !idPattern().MatchString(d.have) {
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
	if have := digest.FromString(w.Packages).Encoded(); have != w.PackagesSHA256 {
		problem("packages_sha256", "the text of packages has %s, have %.100q: the file was changed by hand", have, w.PackagesSHA256)
	}
	var err error
	if e.Packages, err = packages.Parse(w.Packages); err != nil {
		problem("packages", "%v", err)
	}
	return e, errors.Join(errs...)
}

// Update changes the lock in a file, which may not be there yet, so that no change of
// another process is lost and no reader sees a half-written file. change gets what the file
// holds; an unchanged lock is not written. The error of change is returned.
func Update(ctx context.Context, path string, change func(Lock) (Lock, error)) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the file itself, not the link to it
	}
	unlock, err := exclusive(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	before, err := Read(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing {
		before, err = Lock{Source: path}, nil
	}
	if err != nil {
		return err
	}
	after, err := change(before)
	if err != nil {
		return err
	}
	text, err := after.Encode()
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, text) || missing && len(after.entries) == 0 {
		return nil
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // a lock that is kept elsewhere stays there
	}
	if err := fsx.WriteFile(path, text, 0o644, true); err != nil {
		return fileError(path, err)
	}
	return nil
}

// exclusive waits until no other process of this user changes the lock in a file. It locks a
// file in the user's cache directory, because a lock file would litter the project's.
func exclusive(ctx context.Context, path string) (unlock func() error, err error) {
	full, err := filepath.Abs(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	// The directory may be reached by a link while the file is not there yet.
	if dir, err := filepath.EvalSymlinks(filepath.Dir(full)); err == nil {
		full = filepath.Join(dir, filepath.Base(full))
	}
	unlock, err = images.WaitLock(ctx, "lock-"+digest.FromString(full).Encoded()[:16], func() {})
	if err != nil {
		return nil, fmt.Errorf("image lock %s: waiting for others that change it: %w", path, err)
	}
	return unlock, nil
}
