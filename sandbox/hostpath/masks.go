package hostpath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// maxLinks is how many links a path may lead over, as in the kernel.
const maxLinks = 40

// maxEntries bounds the entries of a directory that are searched for other names.
const maxEntries = 1_000_000

// Reasons why a path of the container refers to no file of the host.
var (
	errOutside  = errors.New("leads out of the mounts")
	errTooMany  = errors.New("leads over too many links")
	errNotThere = fs.ErrNotExist
)

// follow resolves a path as the kernel would in the container: links are followed,
// absolute ones from the container's root.
func (t table) follow(inside string) (resolved string, info fs.FileInfo, err error) {
	at, rest, links := "/", strings.Split(strings.Trim(inside, "/"), "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if at = path.Join(at, name); name == "" || name == "." || name == ".." {
			continue
		}
		e, rel, ok := t.Lookup(at)
		if !ok {
			if slices.ContainsFunc(t.Entries, func(e spec.Entry) bool { return spec.Below(e.Target, at) }) {
				continue // on the way to a mount
			}
			return "", nil, errOutside
		}
		if rel == "." {
			continue
		}
		if e.Source == "" {
			return at, nil, errNotThere
		}
		if info, err = os.Lstat(filepath.Join(e.Source, filepath.FromSlash(rel))); err != nil {
			return path.Join(append([]string{at}, rest...)...), nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if links++; links > maxLinks {
			return "", nil, errTooMany
		}
		target, err := os.Readlink(filepath.Join(e.Source, filepath.FromSlash(rel)))
		if err != nil {
			return "", nil, err
		}
		if at = path.Dir(at); path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	e, rel, ok := t.Lookup(at)
	if !ok {
		return "", nil, errOutside
	}
	if rel == "." && e.Source == "" {
		return at, nil, errNotThere
	}
	info, err = os.Lstat(filepath.Join(e.Source, filepath.FromSlash(rel)))
	return at, info, err
}

// resolveMasks finds the files that the masks hide, and the other names by which the program
// could reach them.
func (t *table) resolveMasks(ctx context.Context) error {
	var errs []error
	found := map[string]bool{} // directory or not, by path
	for _, mask := range t.Masks {
		if err := spec.CheckPath("mask", mask.Target); err != nil {
			errs = append(errs, err)
			continue
		}
		inside, info, err := t.follow(mask.Target)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// No file needs to be hidden. In a tree the program must not create it.
			t.addAbsent(mask.Target)
			t.addAbsent(inside)
		case err != nil:
			errs = append(errs, &policy.FieldError{Field: "mask", Value: fmt.Sprintf("%.200q", mask.Text()), Rule: fsx.Cause(err).Error()})
		case !info.IsDir() && !info.Mode().IsRegular():
			errs = append(errs, &policy.FieldError{Field: "mask", Value: fmt.Sprintf("%.200q", mask.Text()), Rule: "is neither a file nor a directory"})
		default:
			found[inside] = info.IsDir()
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := t.addNames(ctx, found); err != nil {
		return err
	}
	t.Masks = nil
	for _, inside := range slices.Sorted(maps.Keys(found)) {
		t.Masks = append(t.Masks, spec.Mask{Target: inside, Dir: found[inside]})
	}
	return nil
}

// addAbsent records a masked path of a tree that does not exist.
func (t *table) addAbsent(name string) {
	for i, e := range t.Entries {
		rel := spec.Rel(name, e.Target)
		if e.Role == spec.RoleTree && t.Shows(e.Target, name) && rel != "." && !slices.Contains(e.Absent, rel) {
			t.Entries[i].Absent = append(t.Entries[i].Absent, rel)
		}
	}
}

// addNames adds the other paths of the hidden files: through another mount that shows the
// same directory of the host, and through further names of the same file.
func (t *table) addNames(ctx context.Context, found map[string]bool) error {
	var secrets tree.Secrets
	for _, inside := range slices.Sorted(maps.Keys(found)) {
		e, rel, _ := t.Lookup(inside)
		host := filepath.Join(e.Source, filepath.FromSlash(rel))
		for _, other := range t.Entries {
			below, err := filepath.Rel(other.Source, host)
			if other.Source == "" || err != nil || !filepath.IsLocal(below) {
				continue
			}
			if name := path.Join(other.Target, filepath.ToSlash(below)); t.Shows(other.Target, name) {
				found[name] = found[inside]
			}
		}
		if err := fsx.InRoot(filepath.Dir(host), func(root *os.Root) error { return secrets.Add(ctx, root, filepath.Base(host)) }); err != nil {
			return &spec.PathError{Field: "mask", Path: host, Rule: "its other names cannot be looked for", Err: fsx.Cause(err)}
		}
	}
	if !secrets.Any() {
		return nil
	}
	for _, e := range t.Entries {
		if err := t.addSecrets(ctx, e, &secrets, found); err != nil {
			return &spec.PathError{Field: "mask", Path: e.Source, Rule: "other names of what is hidden cannot be looked for", Err: fsx.Cause(err)}
		}
	}
	return nil
}

// addSecrets adds the further names that one entry shows.
func (t *table) addSecrets(ctx context.Context, e spec.Entry, secrets *tree.Secrets, found map[string]bool) error {
	switch {
	case e.Source == "":
		return nil
	case !e.Dir:
		return fsx.InRoot(filepath.Dir(e.Source), func(root *os.Root) error {
			if secrets.Is(root, filepath.Base(e.Source)) {
				found[e.Target] = false
			}
			return nil
		})
	}
	return fsx.InRoot(e.Source, func(root *os.Root) error {
		names, err := secrets.Names(ctx, root, maxEntries)
		for _, name := range names {
			if inside := path.Join(e.Target, name); t.Shows(e.Target, inside) {
				found[inside] = false
			}
		}
		return err
	})
}

// resolveCanaries resolves the paths of canaries like those of their masks, and drops
// canaries in an entry whose path does not exist.
func (t *table) resolveCanaries() {
	var resolved []spec.Canary
	for _, c := range t.Canaries {
		if t.Contains(c.Target) {
			inside, info, err := t.follow(c.Target)
			if err != nil {
				continue // it does not exist; the masks have reported every other error
			}
			c = spec.Canary{Target: inside, Dir: info.IsDir()}
			if slices.Contains(resolved, c) {
				continue // another link to the same path
			}
		}
		resolved = append(resolved, c)
	}
	t.Canaries = resolved
}
