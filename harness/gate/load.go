package gate

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
	"syscall"

	"github.com/evalbox/evalbox/harness/gate/attest"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/sandbox"
)

// Document is a gate run as a caller asks for it; it is the document of a trial. Paths are of
// this machine.
type Document struct {
	// Wish is the file of a wish or of its lock. Command, instead, is one command with the
	// defaults of a wish, which is sealed on the spot, in the directory Workspace.
	Wish      string   `json:"wish,omitempty"`
	Command   []string `json:"command,omitempty"`
	Workspace string   `json:"workspace,omitempty"`
	// Env, Limits and Network are those of a Command; a wish says its own.
	Env     map[string]string `json:"env,omitempty"`
	Limits  evidence.Caps     `json:"limits,omitzero"`
	Network *evidence.Egress  `json:"network,omitempty"`
	// Seal seals a wish that is not sealed on the spot.
	Seal bool `json:"seal,omitempty"`
	// Out is the gate directory; see [Job.OutDir].
	Out     string `json:"out,omitempty"`
	Replace bool   `json:"replace,omitempty"`
	// Offline, Strict and Repeats make the run stricter than the wish. AllowUnobserved is for
	// a Command.
	Offline         bool   `json:"offline,omitempty"`
	Strict          bool   `json:"strict,omitempty"`
	AllowUnobserved bool   `json:"allow_unobserved,omitempty"`
	Repeats         int    `json:"repeats,omitempty"`
	Baseline        string `json:"baseline,omitempty"`
	Commit          string `json:"commit,omitempty"`
	// PlanOnly runs nothing, nor does NoTools.
	PlanOnly bool `json:"plan_only,omitempty"`
	NoTools  bool `json:"no_tools,omitempty"`
	// Reports are files that the caller writes afterwards. They are not a part of the
	// workspace of a wish that is sealed on the spot; a lock must exclude them.
	Reports []string `json:"reports,omitempty"`
}

// A FileError is a file of the caller that cannot be used.
type FileError struct {
	// What is the kind of file in words: "wish", "toolchain", "key", "public key" or
	// "output". What and Path are empty if Err names the file.
	What, Path string
	Err        error
	hint       string
}

func (e *FileError) Error() string {
	if e.What == "" {
		return e.Err.Error()
	}
	return e.What + " " + e.Path + ": " + fsx.Cause(e.Err).Error()
}

func (e *FileError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *FileError) Hint() string {
	var knows interface{ Hint() string }
	if errors.As(e.Err, &knows) && knows.Hint() != "" {
		return knows.Hint()
	}
	return e.hint
}

const (
	wishHint   = "give a wish or its lock; or a command: sandbox gate run -- pytest -q"
	formHint   = "see the form of a wish with: sandbox gate schema; an example is in docs/gate.md"
	outputHint = "make room there, or choose another place for the output"
)

// Load reads the wish of a document. One that is sealed on the spot asks the engine for its
// image, and hashes its tools; nothing starts.
func (h *Harness) Load(ctx context.Context, d Document) (Job, error) {
	job := Job{
		OutDir: d.Out, Replace: d.Replace, Baseline: d.Baseline, Commit: d.Commit,
		Mode: evidence.Mode{
			Execute: !d.PlanOnly, Tools: !d.NoTools, Repeats: max(d.Repeats, 1), Flags: evidence.Flags{Offline: d.Offline, Strict: d.Strict},
		},
	}
	var err error
	onTheSpot := d.Seal
	if d.Command != nil {
		asked := spec.Asked{Env: d.Env, Limits: d.Limits, Network: d.Network, AllowUnobserved: d.AllowUnobserved}
		if job.Lock.Wish, err = spec.FromCommand(d.Command, asked); err != nil {
			return job, err
		}
		onTheSpot = true
		job.WishDir, err = filepath.Abs(d.Workspace)
	} else {
		err = job.read(d.Wish, d.Seal)
	}
	if err == nil {
		err = job.excludeReports(d.Reports, onTheSpot)
	}
	if err == nil && onTheSpot {
		job.Lock, err = h.Seal(ctx, job.Lock.Wish)
		job.Sealed = err == nil
	}
	return job, err
}

// read reads a wish or its lock.
func (job *Job) read(file string, seal bool) error {
	text, err := fsx.Read(file, spec.MaxDocument)
	if err == nil {
		job.WishDir, err = filepath.Abs(filepath.Dir(file))
	}
	switch {
	case err != nil:
		return &FileError{"wish", file, err, wishHint}
	case isLock(text) && seal:
		return &FileError{"wish", file, errors.New("is a lock, which is sealed already"), "give the wish itself"}
	case isLock(text):
		job.Lock, err = spec.ParseLock(text, file)
		job.Ignore = []string{filepath.Base(file)}
		if job.Sealed = err == nil; errors.Is(err, spec.ErrChanged) {
			job.NotSealed = "The lock " + spec.ErrChanged.Error()
			return nil
		}
		if err != nil {
			return &FileError{Err: err, hint: "seal the wish again with: sandbox gate seal"}
		}
		return nil
	}
	if job.Lock.Wish, err = spec.Parse(text, file); err != nil {
		return &FileError{Err: err, hint: formHint}
	}
	if !seal {
		job.Lock.Schema, job.Lock.Toolchain.Image = spec.LockV1, job.Lock.Wish.Image
		job.Lock.Toolchain.Mounts = []evidence.ToolMount{}
		job.NotSealed = strings.TrimSuffix(filepath.Base(file), ".") + " is a wish that was not sealed"
	}
	return nil
}

// isLock reports whether a text is a lock and not a wish: JSON with the schema of locks.
func isLock(text []byte) bool {
	var head struct {
		Schema string `json:"schema"`
	}
	return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && json.Unmarshal(text, &head) == nil &&
		strings.HasPrefix(head.Schema, strings.TrimSuffix(spec.LockV1, "1"))
}

// SealFile reads a wish that can run, and seals it. The warnings are for people.
func (h *Harness) SealFile(ctx context.Context, file string) (lock spec.Lock, warnings []string, err error) {
	var job Job
	if err := job.read(file, true); err != nil {
		return lock, nil, err
	}
	w := job.Lock.Wish
	if len(w.GateCommands) == 0 {
		return lock, nil, &FileError{"wish", file, errors.New("names no command, so that nothing could be run"), evidence.ReasonNoCommands.Hint()}
	}
	workspace, err := w.Workspace(job.WishDir)
	if err != nil {
		return lock, nil, &FileError{"wish", file, err, evidence.ReasonNoWorkspace.Hint()}
	}
	for _, name := range slices.Concat(w.ProtectedPaths, w.ReadOnlyPaths) {
		if _, err := os.Lstat(filepath.Join(workspace, filepath.FromSlash(name))); errors.Is(err, fs.ErrNotExist) {
			warnings = append(warnings, name+" is not there, and so it is not protected")
		}
	}
	lock, err = h.Seal(ctx, w)
	if err == nil && !lock.Toolchain.Locked {
		warnings = append(warnings, "the image is not locked; a gate of claim grade, the default, does not pass with it: sandbox image lock")
	}
	return lock, warnings, err
}

// Seal resolves the names of a wish on this machine, and seals it.
func (h *Harness) Seal(ctx context.Context, w spec.Spec) (spec.Lock, error) {
	plan, err := h.box.Plan(ctx, sandbox.Request{
		Image: cmp.Or(w.Image, h.o.Request.Image), AllowUnlocked: h.o.Request.AllowUnlocked, Command: []string{"true"},
		User: h.o.Request.User, Runtime: h.o.Request.Runtime, Transfer: h.o.Request.Transfer,
	})
	if err != nil {
		return spec.Lock{}, err
	}
	image := plan.Class.Image
	t := evidence.Toolchain{Image: cmp.Or(w.Image, image.Reference), ImageID: image.ID, Locked: image.Locked, Mounts: []evidence.ToolMount{}}
	for _, tool := range w.Toolchain {
		digest, err := treehash.Of(ctx, tool.Source, treehash.Options{})
		if err != nil {
			return spec.Lock{}, &FileError{"toolchain", tool.Source, err, "name a directory of this machine as source of the toolchain in the wish"}
		}
		t.Mounts = append(t.Mounts, evidence.ToolMount{Source: tool.Source, Target: tool.Target, Hash: digest.Sum})
	}
	return spec.Seal(w, t)
}

// excludeReports makes sure that the directories of reports exist, and that reports are not a
// part of the workspace: the next run would find a file that is in no commit, and a replay
// other files than the recorded ones.
func (job *Job) excludeReports(files []string, onTheSpot bool) error {
	for _, file := range files {
		info, err := os.Stat(filepath.Dir(file))
		if err == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
		if err != nil {
			return &FileError{"output", file, err, outputHint}
		}
		workspace, err := job.Lock.Wish.Workspace(job.WishDir)
		if err != nil || job.NotSealed != "" {
			continue // nothing runs, and the verdict says why
		}
		rel, inside := within(file, workspace)
		if !inside {
			continue
		}
		excluded := slices.ContainsFunc(job.Lock.Wish.Exclude, func(name string) bool { return fsx.Within(rel, strings.TrimSuffix(name, "/")) })
		if !excluded && !onTheSpot {
			return &FileError{"output", file, errors.New("lies in the workspace, which the next run and a replay would find changed"),
				"write it outside of the workspace, or name it with exclude in the wish, and seal that again"}
		}
		if !excluded {
			job.Lock.Wish.Exclude = append(slices.Clone(job.Lock.Wish.Exclude), rel)
		}
		if from, err := filepath.Rel(fsx.RealPath(job.WishDir), filepath.Join(workspace, rel)); err == nil {
			job.Ignore = append(job.Ignore, from)
		}
	}
	return nil
}

// ReadKey reads the private key that signs the evidence of a job. It must lie where the gates
// cannot read it, and where no other user can replace it.
func (job Job) ReadKey(file string) (key []byte, warning string, err error) {
	key, warning, err = readKey(file)
	if workspace, noWorkspace := job.Lock.Wish.Workspace(job.WishDir); err == nil && noWorkspace == nil && liesIn(file, workspace) {
		return nil, "", &FileError{"key", file, errors.New("lies in the workspace, where the gates can read it"), "keep the key outside of the workspace"}
	}
	return key, warning, err
}

// ReadKey reads the private key that signs the gate directory dir. It must not lie there, because
// evidence is passed on, and no other user may replace it.
func ReadKey(file, dir string) (key []byte, warning string, err error) {
	key, warning, err = readKey(file)
	if err == nil && liesIn(file, dir) {
		return nil, "", &FileError{"key", file, errors.New("lies in the gate directory, which is passed on"), "keep the key elsewhere"}
	}
	return key, warning, err
}

// liesIn reports whether a file lies in a directory, with every link resolved. If that cannot be
// found out, it does.
func liesIn(file, dir string) bool {
	place, err := filepath.Abs(file)
	outer, outerErr := filepath.Abs(dir)
	return err != nil || outerErr != nil || fsx.Within(fsx.RealPath(place), fsx.RealPath(outer))
}

// readKey reads a private key that no other user may replace. It warns of one that others may read.
func readKey(file string) (key []byte, warning string, err error) {
	const hint = "make one with: openssl genpkey -algorithm ed25519 -out gate.key"
	key, err = fsx.Read(file, attest.MaxKey)
	if err == nil {
		err = attest.CheckKey(key)
	}
	info, statErr := os.Stat(file)
	if err = cmp.Or(err, statErr); err != nil {
		return nil, "", &FileError{"key", file, err, hint}
	}
	alone := "make it its owner's alone with: chmod 600 " + file
	switch mode := info.Mode().Perm(); {
	case mode&0o022 != 0:
		return nil, "", &FileError{"key", file, fmt.Errorf("others may change it (mode %04o)", mode), alone}
	case mode&0o044 != 0:
		warning = fmt.Sprintf("key %s: others may read it (mode %04o); %s", file, mode, alone)
	}
	return key, warning, nil
}

// Sign signs a finished gate directory.
func Sign(ctx context.Context, dir string, key []byte) error {
	if err := fsx.InRoot(dir, func(root *os.Root) error { return attest.Sign(ctx, root, key) }); err != nil {
		return fmt.Errorf("signing: %w", err)
	}
	return nil
}

// PublicKey reads the public key that [VerifyOptions.Attestation] checks signatures with.
func PublicKey(file string) (func(ctx context.Context, root *os.Root) error, error) {
	text, err := fsx.Read(file, attest.MaxKey)
	if err == nil {
		err = attest.CheckPublicKey(text)
	}
	if err != nil {
		return nil, &FileError{"public key", file, err, "get it with: openssl pkey -in gate.key -pubout -out gate.pub"}
	}
	return func(ctx context.Context, root *os.Root) error { return attest.Verify(ctx, root, text) }, nil
}
