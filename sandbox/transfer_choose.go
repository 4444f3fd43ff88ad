package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

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
	if shared {
		if shared, err = r.sharesFolders(ctx, req, imageID); err != nil {
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

// probeName is what a file is called by which an engine is tested.
const probeName = ".evalbox-probe-*"

// makeProbe makes a file that is nowhere else, in a folder that may not be made
// yet.
func makeProbe(dir string) (*os.File, error) {
	for {
		probe, err := os.CreateTemp(dir, probeName)
		if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
			dir = parent
			continue
		}
		return probe, err
	}
}

// sharesFolders asks for the folders of a request, of an engine that sees the state
// folder. Nothing follows from that but for what lies on the very same mount: a
// container may have been given one folder of a disk as it is and another folder of
// that disk under a name that means something else to the engine. What the program
// writes to is tested with a file that is nowhere else. The input and further mounts,
// which others may be reading, get none: they are compared, unless they lie on a mount
// that was tested.
func (r *Runner) sharesFolders(ctx context.Context, req Request, imageID string) (bool, error) {
	tested, seen, same := []string{r.store.dir}, []string(nil), []string(nil)
	if req.Final != "" {
		probe, err := probeFinal(req.Final)
		if err == nil {
			defer func() { _ = errors.Join(probe.Close(), os.Remove(probe.Name())) }() // empty, and told by its name
			seen = append(seen, probe.Name())
			tested = append(tested, filepath.Dir(probe.Name()))
		} else if dir := req.Final; isFolder(dir) {
			same = append(same, dir)
		} else {
			same = append(same, filepath.Dir(dir))
		}
	}
	for _, source := range readSources(req) {
		looked := []string{source}
		if name := firstName(source); name != "" {
			looked = append(looked, filepath.Join(source, name))
		}
		if slices.ContainsFunc(tested, func(dir string) bool { return sameMount(dir, source) }) {
			seen = append(seen, looked...)
		} else {
			same = append(same, looked...)
		}
	}
	shared, err := true, error(nil)
	if len(seen) > 0 {
		shared, err = r.engine.Sees(ctx, imageID, seen...)
	}
	if shared && err == nil && len(same) > 0 {
		shared, err = r.engine.SeesSame(ctx, imageID, same...)
	}
	return shared, err
}

// readSources are the files and folders of the host that a program reads in place.
// Trees are not among them: their copies lie in the state folder.
func readSources(req Request) []string {
	var sources []string
	if req.Input != "" {
		sources = append(sources, req.Input)
	}
	for _, m := range req.Mounts {
		sources = append(sources, m.Source)
	}
	return sources
}

// probeFinal makes a file beside ./final, which a run that uses that folder now does
// not notice, or in it when only that is the same mount or may be written to.
func probeFinal(final string) (*os.File, error) {
	if parent := filepath.Dir(final); !isFolder(final) || sameMount(parent, final) {
		if probe, err := makeProbe(parent); err == nil {
			return probe, nil
		}
	}
	return os.CreateTemp(final, probeName)
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// firstName is one of the first names in a folder, of a file or folder.
func firstName(dir string) string {
	folder, err := os.Open(dir)
	if err != nil {
		return "" // told when it is opened to be used
	}
	defer folder.Close()
	entries, _ := folder.ReadDir(16) // likewise
	for _, entry := range entries {
		if entry.IsDir() || entry.Type().IsRegular() {
			return entry.Name()
		}
	}
	return ""
}
