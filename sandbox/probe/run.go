package probe

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/ends"
)

// A Place runs probes. Its methods may be called concurrently.
type Place struct {
	Runner *sandbox.Runner
	// Request has the image, the runtime and the transfer of all runs.
	Request sandbox.Request
	Machine Machine
	// Dir is a directory for the files of the probes.
	Dir string
	// Secrets are texts that no result may contain, such as those of a canary in the
	// environment of the controller.
	Secrets []string
	// Waited says that each container has waited for its run in the pool of the runner.
	Waited bool
}

// Ask runs a batch and judges its answers.
func (p Place) Ask(ctx context.Context, b Batch) []Verdict {
	res, more, err := p.run(ctx, b.Group, Run{Python: b.Python, Limits: policy.Limits{Timeout: 5 * time.Minute, Memory: policy.GiB, CPUs: 2, PIDs: p.Machine.PIDs(256)}})
	if err != nil {
		all := make([]Verdict, len(b.Questions))
		for i, q := range b.Questions {
			all[i] = Verdict{q.Group, q.Name, []string{err.Error()}}
		}
		return all
	}
	all := b.Judge(p.Machine, res)
	all[0].Differs = append(all[0].Differs, more...)
	return all
}

// Try runs one program and judges its result.
func (p Place) Try(ctx context.Context, r Run) Verdict {
	res, more, err := p.run(ctx, r.Group+"-"+r.Name, r)
	if refused := r.want(p.Machine).Refused; refused != "" {
		if err == nil {
			return Verdict{r.Group, r.Name, []string{"the run was not refused"}}
		}
		if !ends.Fits(refused, err.Error()) {
			return Verdict{r.Group, r.Name, []string{fmt.Sprintf("the refusal is %q, not %q", err, refused)}}
		}
		return Verdict{Group: r.Group, Name: r.Name}
	}
	if err != nil {
		return Verdict{r.Group, r.Name, []string{err.Error()}}
	}
	v := r.Judge(p.Machine, res)
	v.Differs = append(v.Differs, more...)
	return v
}

// Look runs one program, and returns its result and what it did to the host beyond ./final.
func (p Place) Look(ctx context.Context, r Run) (*result.Result, []string, error) {
	return p.run(ctx, r.Group+"-"+r.Name, r)
}

// run runs a program between files that it must not change, and returns the result with what
// is wrong on the host.
func (p Place) run(ctx context.Context, name string, r Run) (*result.Result, []string, error) {
	base, err := os.MkdirTemp(p.Dir, "probe-")
	if err != nil {
		return nil, nil, err
	}
	defer fsx.Remove(base) //nolint:errcheck // the caller removes Dir, and reports it
	final := filepath.Join(base, "final")
	beside := filepath.Join(base, "beside")
	if err := lay(base, beside, final, r.Python); err != nil {
		return nil, nil, err
	}
	for file, text := range r.Input {
		if err := os.WriteFile(filepath.Join(beside, "input", file), []byte(text), 0o644); err != nil {
			return nil, nil, err
		}
	}
	before, err := treehash.Of(ctx, beside, treehash.Options{})
	if err != nil {
		return nil, nil, err
	}
	req := p.Request
	req.Name = "probe"
	req.Command, req.NoFork, req.Ulimits, req.Limits, req.SoftSignal = r.Command, r.NoFork, r.Ulimits, r.Limits, r.SoftSignal
	req.Input, req.Final = filepath.Join(beside, "input"), final
	if r.Python != "" {
		req.Script = filepath.Join(beside, "program.py")
	}
	req.Limits.Timeout = cmp.Or(r.Limits.Timeout, time.Minute)
	req.Limits.Memory = cmp.Or(r.Limits.Memory, 256*policy.MiB)
	req.Limits.CPUs = cmp.Or(r.Limits.CPUs, 1)
	var options []sandbox.RunOption
	if r.Stdin != "" {
		options = append(options, sandbox.IO{Stdin: strings.NewReader(r.Stdin)})
	}
	if p.Waited {
		if err := p.warm(ctx, req, r); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	res, err := p.Runner.Run(ctx, req, options...)
	if p.Waited && err == nil && !res.Pool.Waited {
		err = fmt.Errorf("no container had waited: %s", res.Pool.Reason)
	}
	if err != nil && res == nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	wrong, hostErr := p.lookAtHost(ctx, res, final, beside, before)
	if p.Machine.Pod {
		wrong = append(wrong, takeWarning(res)...)
	}
	if r.want(p.Machine).Status != result.StatusStartFailed {
		hostErr = errors.Join(err, hostErr)
	}
	return res, wrong, errors.Join(hostErr, p.Runner.Store().Remove(res.ID))
}

// takeWarning takes the warning from a result that every run in a pod has, and reports if it is missing.
func takeWarning(res *result.Result) (wrong []string) {
	before := len(res.Warnings)
	res.Warnings = slices.DeleteFunc(res.Warnings, func(w string) bool { return strings.HasPrefix(w, "the engine does not enforce all limits; ") })
	if len(res.Warnings) != before-1 {
		return []string{"the result does not say that the engine does not enforce all limits"}
	}
	return nil
}

// warm has a container wait for a run. One that is refused has none.
func (p Place) warm(ctx context.Context, req sandbox.Request, r Run) error {
	if err := p.Runner.Warm(ctx, req, 1); err != nil && r.want(p.Machine).Refused == "" {
		return err
	}
	return nil
}

// lay makes the files of a run. Everything in beside must stay as it is.
func lay(base, beside, final, program string) error {
	input := filepath.Join(beside, "input")
	return errors.Join(
		os.Chmod(base, 0o755), os.Mkdir(beside, 0o755), os.Mkdir(input, 0o755), os.Mkdir(filepath.Join(input, "more"), 0o755), os.Mkdir(final, 0o755),
		os.WriteFile(filepath.Join(input, "data.txt"), []byte("data of the input"), 0o644),
		os.WriteFile(filepath.Join(input, "more", "numbers.csv"), []byte("1,2\n"), 0o644),
		os.WriteFile(filepath.Join(beside, "canary"), []byte("beside the run"), 0o600),
		os.WriteFile(filepath.Join(beside, "program.py"), []byte(program), 0o644),
	)
}

// lookAtHost returns what a run has done to the host beyond ./final.
func (p Place) lookAtHost(ctx context.Context, res *result.Result, final, beside string, before treehash.Digest) (wrong []string, err error) {
	after, err := treehash.Of(ctx, beside, treehash.Options{})
	if err != nil {
		return nil, err
	}
	if before.Sum != after.Sum {
		wrong = append(wrong, "the program changed files beside ./final")
	}
	text, err := res.Encode()
	if err != nil {
		return nil, err
	}
	if _, err := result.Decode(text); err != nil {
		wrong = append(wrong, "the result cannot be read: "+err.Error())
	}
	for _, secret := range append(slices.Clone(p.Secrets), "beside the run") {
		if bytes.Contains(text, []byte(secret)) {
			wrong = append(wrong, fmt.Sprintf("the result contains %q", secret))
		}
	}
	wrong = append(wrong, p.lookAtFinal(ctx, res, final)...)
	if err := fsx.Remove(final); err != nil {
		wrong = append(wrong, "./final cannot be deleted: "+err.Error())
	}
	return wrong, nil
}

// lookAtFinal checks that ./final belongs to the caller again, that nothing in it is
// dangerous, and that the listed outputs are there as they were hashed.
func (p Place) lookAtFinal(ctx context.Context, res *result.Result, final string) (wrong []string) {
	root, err := os.OpenRoot(final)
	if err != nil {
		return []string{err.Error()}
	}
	defer root.Close()
	listed := map[string]string{}
	for _, o := range res.Outputs {
		if o.PathBase64 == "" {
			listed[o.Path] = o.SHA256
		}
	}
	err = fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (bool, error) {
		if uid, _, ok := fsx.OwnerOf(info); ok && uid != os.Geteuid() {
			wrong = append(wrong, fmt.Sprintf("%.100q belongs to user %d", name, uid))
		}
		if info.Mode().IsRegular() && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			wrong = append(wrong, fmt.Sprintf("%.100q is set-user-ID or set-group-ID", name))
		}
		if sum, ok := listed[name]; ok {
			delete(listed, name)
			if got, err := sha(root, name); err == nil && got != sum {
				wrong = append(wrong, fmt.Sprintf("the hash of %.100q is not that of the file", name))
			}
		}
		return strings.Count(name, "/") < 40, nil
	})
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	for name := range listed {
		wrong = append(wrong, fmt.Sprintf("the output %.100q is not there", name))
	}
	return wrong
}

func sha(root *os.Root, name string) (string, error) {
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return hashOf(io.LimitReader(f, 1<<40))
}

func hashOf(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
