package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// maxSpecial is how many sockets, FIFOs and devices are hidden: each is a mount.
	maxSpecial = 100
	// maxLooked bounds the entries that are searched. A hundred thousand take about a
	// tenth of a second.
	maxLooked = 5_000_000
)

// specialTypes are the types of files that lead to other processes of the host, or to its
// devices, even through a read-only mount.
const specialTypes = fs.ModeSocket | fs.ModeNamedPipe | fs.ModeDevice | fs.ModeCharDevice | fs.ModeIrregular

// HideSpecial adds masks for the sockets, FIFOs and devices that the mounts and the input of
// a resolved mount table show, and returns a warning if there are any. Special files that
// are created later are not hidden.
func HideSpecial(ctx context.Context, layout *spec.Layout) (warnings []string, err error) {
	s := specials{Layout: *layout, masks: map[string]bool{}}
	for _, mask := range layout.Masks {
		s.masks[mask.Target] = true
	}
	for _, e := range layout.Entries {
		if e.Role == spec.RoleTree || !e.Dir {
			continue // a copy has none, and a mounted file is a regular one
		}
		if err := s.look(ctx, e); err != nil {
			return nil, err
		}
	}
	if len(s.found) == 0 {
		return nil, nil
	}
	slices.Sort(s.found)
	layout.Masks = slices.Clone(layout.Masks)
	for _, inside := range s.found {
		layout.Masks = append(layout.Masks, spec.Mask{Target: inside})
	}
	return []string{fmt.Sprintf("%d sockets, FIFOs and devices of the host are hidden, for they lead to its processes: %.1000s",
		len(s.found), quoteNames(s.found, 5))}, nil
}

// quoteNames lists the first names.
func quoteNames(names []string, most int) string {
	var quoted []string
	for _, name := range names[:min(most, len(names))] {
		quoted = append(quoted, fmt.Sprintf("%.200q", name))
	}
	if len(names) > most {
		quoted = append(quoted, "…")
	}
	return strings.Join(quoted, ", ")
}

// specials looks for special files in what a program sees.
type specials struct {
	spec.Layout
	masks  map[string]bool
	found  []string
	looked int
}

// look searches one entry. It reads names and types only, hundreds with one system call.
func (s *specials) look(ctx context.Context, e spec.Entry) error {
	queue := []string{"."}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		below, err := s.dir(ctx, e, at)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			// It is gone, or this process may not read it either.
		case err != nil:
			return err
		}
		queue = append(queue, below...)
	}
	return nil
}

func (s *specials) dir(ctx context.Context, e spec.Entry, at string) (below []string, err error) {
	dir, err := os.Open(filepath.Join(e.Source, filepath.FromSlash(at)))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	refuse := func(rule string) error { return &spec.PathError{Field: "mount", Path: e.Source, Rule: rule} }
	for {
		entries, readErr := dir.ReadDir(1024)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if s.looked += len(entries); s.looked > maxLooked {
			return nil, refuse(fmt.Sprintf("holds, with the other mounts, more than %d entries: too many to look for sockets and FIFOs of the host", maxLooked))
		}
		for _, entry := range entries {
			kind, name := entry.Type(), path.Join(at, entry.Name())
			if !kind.IsDir() && kind&specialTypes == 0 {
				continue
			}
			inside := path.Join(e.Target, name)
			if !s.Shows(e.Target, inside) || s.masks[inside] {
				continue // another mount lies on it, or it is hidden
			}
			if kind.IsDir() {
				below = append(below, name)
				continue
			}
			if s.found = append(s.found, inside); len(s.found) > maxSpecial {
				return nil, refuse(fmt.Sprintf("shows more than %d sockets, FIFOs and devices, which lead to processes of the host: too many to hide", maxSpecial))
			}
		}
		if errors.Is(readErr, io.EOF) {
			return below, nil
		}
		if readErr != nil {
			return nil, readErr
		}
	}
}
