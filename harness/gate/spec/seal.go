package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sync"

	"github.com/evalbox/evalbox/internal/strict"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// LockV1 names the wire form of [Lock].
const LockV1 = "evalbox/wish-lock/v1"

// ErrChanged means that the content of a lock is not what was sealed.
var ErrChanged = errors.New("is not what was sealed: its content and its hash differ; seal the wish again")

// Lock is wish.lock.json: a wish, the meaning of its names when it was sealed, and a hash over
// both (RT-01). Equal wishes and toolchains are equal bytes.
type Lock struct {
	// Schema is [LockV1].
	Schema string `json:"schema"`
	Wish   Spec   `json:"wish"`
	// Toolchain has the mounts of the wish, in its order, with their hashes.
	Toolchain evidence.Toolchain `json:"toolchain"`
	// SHA256 is the hash of the canonical JSON of the lock without it.
	SHA256 string `json:"sha256"`
}

// Seal creates the lock of a wish. t has the meaning of the wish's image, Python and mounts on
// this machine. Seal reads no disk.
func Seal(w Spec, t evidence.Toolchain) (Lock, error) {
	l := Lock{Schema: LockV1, Wish: w, Toolchain: t}
	l.Toolchain.Python = w.Python
	l.Toolchain.Mounts = append([]evidence.ToolMount{}, t.Mounts...)
	if err := l.check("wish", nil); err != nil {
		return Lock{}, err
	}
	sum, err := l.hash()
	l.SHA256 = sum
	return l, err
}

// JSON is the content of the file: canonical JSON (sorted keys, two spaces, LF).
func (l Lock) JSON() ([]byte, error) { return evidence.Canonical(l) }

// ParseLock reads a lock strictly: no key may be missing or unknown. name is that of the file
// in messages. A changed lock is returned together with [ErrChanged]; any other error means
// that there is no lock.
func ParseLock(text []byte, name string) (Lock, error) {
	if err := small(text, name); err != nil {
		return Lock{}, err
	}
	if !json.Valid(text) {
		return Lock{}, fmt.Errorf("%s: is not JSON", name)
	}
	var l Lock
	lines := map[string]int{}
	problems := strict.Decode(text, &l, strict.Options{Tag: "json", Schema: LockV1, Lines: lines})
	if err := strict.Join(name, problems); err != nil {
		return Lock{}, err
	}
	sum, err := l.hash()
	if err != nil {
		return Lock{}, err
	}
	// The bytes are compared too: a default that the decoder fills in was not sealed.
	sealed, err := l.JSON()
	switch {
	case err != nil:
		return Lock{}, err
	case sum != l.SHA256 || !bytes.Equal(bytes.TrimSpace(text), bytes.TrimSpace(sealed)):
		return l, fmt.Errorf("%s: %w", name, ErrChanged)
	}
	if err := l.check(name, lines); err != nil {
		return Lock{}, err
	}
	return l, nil
}

var imageID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })

// check reports problems of a wish and of its toolchain.
func (l Lock) check(source string, lines map[string]int) error {
	c := checker{source: source, lines: lines, prefix: "wish."}
	c.spec(l.Wish)
	c.prefix = ""
	t := l.Toolchain
	c.text("toolchain.image", t.Image)
	c.when(l.Wish.Image != "" && t.Image != l.Wish.Image, "toolchain.image", t.Image, "is not the image of the wish, "+strict.Quoted(l.Wish.Image))
	c.when(t.ImageID != "" && !imageID().MatchString(t.ImageID), "toolchain.image_id", t.ImageID, "must be the ID of an image, such as sha256:…")
	c.when(t.Locked && t.ImageID == "", "toolchain.locked", "", "is true, and there is no image_id")
	c.when(t.Python != l.Wish.Python, "toolchain.python", t.Python, "is not the python of the wish")
	tools, mounts := l.Wish.Toolchain, t.Mounts
	if len(tools) != len(mounts) {
		c.refuse("toolchain.mounts", "", fmt.Sprintf("has %d directories, and the wish %d", len(mounts), len(tools)))
		return c.err()
	}
	for i, m := range mounts {
		at := fmt.Sprintf("toolchain.mounts[%d]", i)
		c.when((Tool{Source: m.Source, Target: m.Target}) != tools[i], at, "", "is not the directory of the wish at this place")
		c.when(!evidence.IsSHA256(m.Hash), at+".hash", m.Hash, "must be the SHA-256 of the directory's tree; see treehash.Of")
	}
	return c.err()
}

func (l Lock) hash() (string, error) {
	l.SHA256 = ""
	text, err := evidence.Canonical(l)
	if err != nil {
		return "", err
	}
	return evidence.SHA256(text), nil
}
