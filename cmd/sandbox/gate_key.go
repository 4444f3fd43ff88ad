package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/attest"
)

// key reads the private key of --sign; nil if there is none. It must lie where the gates
// cannot read it, and where nobody else can put another one.
func (f *gateFlags) key(a *app, o gate.Options) ([]byte, error) {
	if f.sign == "" {
		return nil, nil
	}
	text, err := fsx.Read(f.sign, attest.MaxKey)
	if err != nil {
		return nil, &fileError{fileKey, f.sign, err}
	}
	if err := attest.CheckKey(text); err != nil {
		return nil, &fileError{fileKey, f.sign, err}
	}
	info, err := os.Stat(f.sign)
	if err != nil {
		return nil, &fileError{fileKey, f.sign, err}
	}
	switch mode := info.Mode().Perm(); {
	case runtime.GOOS == "windows": // has other permissions
	case mode&0o022 != 0:
		return nil, &hintedError{fmt.Errorf("key %s: others may change it (mode %04o)", f.sign, mode), "make it its owner's alone with: chmod 600 " + shellWord(f.sign)}
	case mode&0o044 != 0:
		a.say(fmt.Sprintf("warning: key %s: others may read it (mode %04o); make it its owner's alone with: chmod 600 %s", f.sign, mode, shellWord(f.sign)))
	}
	if workspace, err := o.Lock.Wish.Workspace(o.WishDir); err == nil && inside(f.sign, workspace) {
		return nil, &hintedError{fmt.Errorf("key %s: lies in the workspace, where the gates can read it", f.sign), "keep the key outside of the workspace"}
	}
	return text, nil
}

// inside says whether a file lies below a folder, behind all links.
func inside(file, folder string) bool {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return false
	}
	if real, err = filepath.Abs(real); err != nil {
		return false
	}
	rel, err := filepath.Rel(folder, real)
	return err == nil && filepath.IsLocal(rel)
}

// signGate signs a finished gate directory.
func signGate(ctx context.Context, dir string, key []byte) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("signing: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := attest.Sign(ctx, root, key); err != nil {
		return fmt.Errorf("signing: %w", err)
	}
	return nil
}

// publicKey reads a public key, and makes a check of attestations of it.
func publicKey(file string) (func(ctx context.Context, root *os.Root) error, error) {
	text, err := fsx.Read(file, attest.MaxKey)
	if err != nil {
		return nil, &fileError{filePublicKey, file, err}
	}
	if err := attest.CheckPublicKey(text); err != nil {
		return nil, &fileError{filePublicKey, file, err}
	}
	return func(ctx context.Context, root *os.Root) error { return attest.Verify(ctx, root, text) }, nil
}
