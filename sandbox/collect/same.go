package collect

import (
	"context"
	"os"
	"time"

	"github.com/evalbox/evalbox/result"
)

// Same reports whether root holds what an earlier call of [Outputs] with the same
// limits listed: the same files of the same sizes, none of them written after
// since, and the same entries left out. Contents are not read. Times can be set by
// whoever owns the files, so a file may look changed that is not; the caller must
// make sure that this errs to the safe side.
func Same(ctx context.Context, root *os.Root, limits Limits, outputs []result.Output, skipped []result.SkippedOutput, since time.Time) (bool, error) {
	w := &walker{root: root, limits: limits}
	if err := w.walk(ctx); err != nil {
		return false, err
	}
	known := make(map[string]string, len(outputs)+len(skipped))
	sizes := make(map[string]int64, len(outputs))
	for _, out := range outputs {
		known[out.Path], sizes[out.Path] = "output", out.SizeBytes
	}
	for _, s := range skipped {
		known[s.Path] = s.Kind
	}
	if len(known) != len(w.files)+len(w.skipped.list) || w.skipped.more > 0 {
		return false, nil
	}
	for _, f := range w.files {
		name, _ := EncodePath(f.Name)
		if known[name] != "output" || sizes[name] != f.Info.Size() || f.Info.ModTime().After(since) {
			return false, nil
		}
	}
	for _, s := range w.skipped.list {
		if known[s.Path] != s.Kind {
			return false, nil
		}
	}
	return true, nil
}
