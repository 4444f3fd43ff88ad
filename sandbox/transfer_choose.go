package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/policy"
)

// chooseTransfer decides how the files of a run reach the engine. Nothing is
// guessed from the engine's address: a socket of this machine may be the host's,
// mounted into our container, and an engine at the end of a connection may be on
// this machine. The engine is asked.
func (r *Runner) chooseTransfer(ctx context.Context, req Request, imageID string) (string, error) {
	asked, err := planTransfer(req.Transfer)
	if err != nil || asked == TransferCopy {
		return asked, err
	}
	shared, err := r.sharesState(ctx, imageID)
	if err != nil {
		return "", err
	}
	if others := r.otherDisks(req); shared && len(others) > 0 {
		if shared, err = r.engine.Sees(ctx, imageID, others...); err != nil {
			return "", err
		}
	}
	switch {
	case shared:
		return TransferBind, nil
	case req.Transfer == TransferBind:
		return "", &policy.FieldError{Field: "transfer", Value: TransferBind,
			Rule: "the engine does not see the folders of this machine, so it cannot mount them"}
	}
	return TransferCopy, nil
}

// sharesState asks whether the engine sees a file that was made just now in the
// state folder. The answer is remembered like the engine's other facts.
func (r *Runner) sharesState(ctx context.Context, imageID string) (bool, error) {
	r.factsMu.Lock()
	defer r.factsMu.Unlock()
	dir := r.store.dir
	key := mountNamespace() + " " + dir
	if shared, known := r.shares[key]; known {
		return shared, nil
	}
	probe, err := makeProbe(dir)
	if err != nil {
		return false, stateError(dir, "cannot be written", err)
	}
	shared, err := r.engine.Sees(ctx, imageID, probe.Name())
	err = errors.Join(err, probe.Close(), os.Remove(probe.Name()))
	if err != nil {
		return false, err
	}
	if r.shares == nil {
		r.shares = map[string]bool{}
	}
	r.shares[key] = shared
	r.rememberFacts(r.identity(ctx))
	return shared, nil
}

// makeProbe makes a file that is nowhere else, in a folder that may not be made
// yet.
func makeProbe(dir string) (*os.File, error) {
	for {
		probe, err := os.CreateTemp(dir, ".evalbox-probe-*")
		if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
			dir = parent
			continue
		}
		return probe, err
	}
}

// otherDisks are the folders of a request that lie on another file system than the
// state folder does, which the engine may not see although it sees that. Of the
// input one name goes with it: another folder of the same path hardly has it.
func (r *Runner) otherDisks(req Request) []string {
	var others []string
	if req.Input != "" && !sameDisk(r.store.dir, req.Input) {
		others = append(others, req.Input)
		if name := firstName(req.Input); name != "" {
			others = append(others, filepath.Join(req.Input, name))
		}
	}
	if req.Final != "" {
		final := req.Final
		if _, err := os.Lstat(final); err != nil {
			final = filepath.Dir(final) // it is made later
		}
		if !sameDisk(r.store.dir, final) {
			others = append(others, final)
		}
	}
	return others
}

func firstName(dir string) string {
	folder, err := os.Open(dir)
	if err != nil {
		return "" // told when it is opened to be used
	}
	defer folder.Close()
	names, err := folder.Readdirnames(1)
	if err != nil && !errors.Is(err, io.EOF) || len(names) == 0 {
		return ""
	}
	return names[0]
}
