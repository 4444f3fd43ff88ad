package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/sandbox"
)

// defaultLock is the file name of a sealed wish.
const defaultLock = evidence.WishLockFile

func newGateSealCommand(a *app) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "seal WISH.yaml [-o wish.lock.json]",
		Short: "Seal a wish, so that it can be run",
		Long: `Seal a wish: check it, look up what its names stand for now (the ID of the image, the
hashes of its toolchain), and write all of it with a hash into a lock. A gate runs
what was sealed and nothing else: whoever changes the lock has to seal again.

The hash finds changes, not forgers. Nothing is run.`,
		Example: "  sandbox gate seal wish.yaml\n  sandbox gate seal ci/wish.yaml -o ci/wish.lock.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("output") && output == "" {
				return usagef(cmd.CommandPath(), "gate seal: --output is empty: give a file, or leave it out")
			}
			return a.sealWish(cmd.Context(), args[0], output)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` for the lock (default: "+defaultLock+" beside the wish)")
	a.settingFlags(cmd, false, "image", "allow_unlocked")
	return cmd
}

func (a *app) sealWish(ctx context.Context, file, output string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	shown, err := readWish(ctx, file)
	if err != nil {
		return err
	}
	w, err := spec.Parse(shown, file)
	if err != nil {
		return &hintedError{err, wishHint}
	}
	if err := a.checkWish(w, file); err != nil {
		return err
	}
	runner, err := a.runner(s)
	if err != nil {
		return err
	}
	lock, err := seal(ctx, runner, s, w)
	if err := errors.Join(err, runner.Close()); err != nil {
		return err
	}
	output = cmp.Or(output, filepath.Join(filepath.Dir(file), defaultLock))
	if err := writeLock(lock, output); err != nil {
		return err
	}
	if !lock.Toolchain.Locked {
		a.say("warning: the image is not locked; a gate of claim grade, the default, does not pass with it: sandbox image lock")
	}
	return a.print("sealed %s: %s, %s on %s, in %s\n", w.Name, lock.SHA256, text.Count(len(w.GateCommands), "command"), lock.Toolchain.ImageID, output)
}

// checkWish refuses a wish that could never be run, and warns of protected paths that do not
// exist.
func (a *app) checkWish(w spec.Spec, file string) error {
	if len(w.GateCommands) == 0 {
		return &hintedError{fmt.Errorf("wish %s: names no command, so that nothing could be run", file), evidence.ReasonNoCommands.Hint()}
	}
	workspace, err := w.Workspace(filepath.Dir(file))
	if err != nil {
		return &hintedError{fmt.Errorf("wish %s: %w", file, err), evidence.ReasonNoWorkspace.Hint()}
	}
	for _, name := range slices.Concat(w.ProtectedPaths, w.ReadOnlyPaths) {
		if _, err := os.Lstat(filepath.Join(workspace, filepath.FromSlash(name))); errors.Is(err, fs.ErrNotExist) {
			a.say(fmt.Sprintf("warning: %s is not there, and so it is not protected", name))
		}
	}
	return nil
}

const wishHint = "see the form of a wish with: sandbox gate schema; an example is in docs/gate.md"

// readWish reads a wish or its lock.
func readWish(ctx context.Context, file string) ([]byte, error) {
	text, err := interruptibly(ctx, func() ([]byte, error) { return fsx.Read(file, spec.MaxDocument) })
	if err != nil {
		return nil, &fileError{fileWish, file, err}
	}
	return text, nil
}

// seal resolves the names of a wish on this machine, and seals it.
func seal(ctx context.Context, runner *sandbox.Runner, s settings.Settings, w spec.Spec) (spec.Lock, error) {
	req := s.Request()
	req.Image = cmp.Or(w.Image, req.Image)
	req.Command = []string{"true"}
	// Only the image counts here.
	req.GPUs, req.Network = "", ""
	run, err := runner.Plan(ctx, req)
	if err != nil {
		return spec.Lock{}, err
	}
	image := run.Class.Image
	t := evidence.Toolchain{Image: cmp.Or(w.Image, image.Reference), ImageID: image.ID, Locked: image.Locked, Mounts: []evidence.ToolMount{}}
	for _, tool := range w.Toolchain {
		tree, err := treehash.Of(ctx, tool.Source, treehash.Options{})
		if err != nil {
			return spec.Lock{}, &hintedError{fmt.Errorf("toolchain %s: %w", tool.Target, err), "name a folder of this machine as source of the toolchain in the wish"}
		}
		t.Mounts = append(t.Mounts, evidence.ToolMount{Source: tool.Source, Target: tool.Target, Hash: tree.Sum})
	}
	return spec.Seal(w, t)
}

// writeLock writes a lock, whole or not at all.
func writeLock(lock spec.Lock, file string) error {
	text, err := lock.JSON()
	if err != nil {
		return err
	}
	return writeReport(file, text)
}

// isLock says that a text is a lock and not a wish: JSON with the schema of locks.
func isLock(text []byte) bool {
	var head struct {
		Schema string `json:"schema"`
	}
	return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && json.Unmarshal(text, &head) == nil &&
		strings.HasPrefix(head.Schema, strings.TrimSuffix(spec.LockV1, "1"))
}
