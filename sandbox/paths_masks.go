package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/tree"

	"github.com/evalbox/evalbox/policy"
)

// maxLinks is how many links a path may lead over, as in the kernel.
const maxLinks = 40

// Why a path inside the container stands for nothing of the host.
var (
	errOutside  = errors.New("leads out of the mounts")
	errTooMany  = errors.New("leads over too many links")
	errNotThere = fs.ErrNotExist
)

// follow resolves a path as the kernel would in the container: links are followed,
// absolute ones from the container's root.
func (v view) follow(inside string) (resolved string, info fs.FileInfo, err error) {
	at, rest, links := "/", strings.Split(strings.Trim(inside, "/"), "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		if at = path.Join(at, name); name == "" || name == "." || name == ".." {
			continue
		}
		p, rel, ok := v.at(at)
		if !ok {
			if slices.ContainsFunc(v, func(p place) bool { return insideOf(p.target, at) }) {
				continue // on the way to a mount
			}
			return "", nil, errOutside
		}
		if rel == "." {
			continue
		}
		if p.source == "" {
			return at, nil, errNotThere
		}
		if info, err = os.Lstat(filepath.Join(p.source, filepath.FromSlash(rel))); err != nil {
			return path.Join(append([]string{at}, rest...)...), nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if links++; links > maxLinks {
			return "", nil, errTooMany
		}
		target, err := os.Readlink(filepath.Join(p.source, filepath.FromSlash(rel)))
		if err != nil {
			return "", nil, err
		}
		if at = path.Dir(at); path.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	p, rel, ok := v.at(at)
	if !ok {
		return "", nil, errOutside
	}
	if rel == "." && p.source == "" {
		return at, nil, errNotThere
	}
	info, err = os.Lstat(filepath.Join(p.source, filepath.FromSlash(rel)))
	return at, info, err
}

// resolveMasks finds what the masks stand for, and by what other names the program
// could reach it.
func (v view) resolveMasks(ctx context.Context, req Request) (Request, error) {
	if len(req.Masks) == 0 {
		return req, nil
	}
	var errs []error
	found := map[string]bool{} // folder or not, by path
	req.missing = map[string][]string{}
	for _, mask := range req.Masks {
		text := strings.TrimSuffix(mask, "/")
		if err := checkInside("mask", text); err != nil {
			errs = append(errs, err)
			continue
		}
		inside, info, err := v.follow(text)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// Nothing is there that could be shown; in a tree it must not be made.
			for _, name := range []string{text, inside} {
				if p, rel, ok := v.at(name); ok && p.tree && rel != "." && !slices.Contains(req.missing[p.target], rel) {
					req.missing[p.target] = append(req.missing[p.target], rel)
				}
			}
		case err != nil:
			errs = append(errs, &policy.FieldError{Field: "mask", Value: fmt.Sprintf("%.200q", mask), Rule: fsx.Cause(err).Error()})
		case !info.IsDir() && !info.Mode().IsRegular():
			errs = append(errs, &policy.FieldError{Field: "mask", Value: fmt.Sprintf("%.200q", mask), Rule: "is neither a file nor a folder"})
		default:
			found[inside] = info.IsDir()
		}
	}
	if err := errors.Join(errs...); err != nil {
		return req, err
	}
	if err := v.addNames(ctx, found); err != nil {
		return req, err
	}
	req.Masks = nil
	for _, inside := range tree.SortedKeys(found) {
		if found[inside] {
			inside += "/"
		}
		req.Masks = append(req.Masks, inside)
	}
	return req, nil
}

// addNames adds the other paths of what is hidden: through another mount that shows the
// same folder of the host, and through further names of the same file.
func (v view) addNames(ctx context.Context, found map[string]bool) error {
	var secrets tree.Secrets
	for _, inside := range tree.SortedKeys(found) {
		p, rel, _ := v.at(inside)
		host := filepath.Join(p.source, filepath.FromSlash(rel))
		for _, other := range v {
			below, err := filepath.Rel(other.source, host)
			if other.source == "" || err != nil || !filepath.IsLocal(below) {
				continue
			}
			name := path.Join(other.target, filepath.ToSlash(below))
			if shown, _, _ := v.at(name); shown == other {
				found[name] = found[inside]
			}
		}
		if err := inFolder(filepath.Dir(host), func(root *os.Root) error { return secrets.Add(ctx, root, filepath.Base(host)) }); err != nil {
			return &PathError{Field: "mask", Path: host, Rule: "its other names cannot be looked for", Err: fsx.Cause(err)}
		}
	}
	if !secrets.Any() {
		return nil
	}
	for _, p := range v {
		if p.source == "" {
			continue
		}
		dir, only := p.source, ""
		if !p.folder {
			dir, only = filepath.Dir(p.source), filepath.Base(p.source)
		}
		err := inFolder(dir, func(root *os.Root) error {
			if only != "" {
				if secrets.Is(root, only) {
					found[p.target] = false
				}
				return nil
			}
			names, err := secrets.Names(ctx, root, maxEntries)
			for _, name := range names {
				inside := path.Join(p.target, name)
				if shown, _, _ := v.at(inside); shown == p {
					found[inside] = false
				}
			}
			return err
		})
		if err != nil {
			return &PathError{Field: "mask", Path: p.source, Rule: "other names of what is hidden cannot be looked for", Err: fsx.Cause(err)}
		}
	}
	return nil
}

// inFolder opens a folder for do.
func inFolder(dir string, do func(*os.Root) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(do(root), root.Close())
}

// maskDecoys adds the masks that decoys stand for.
func (v view) maskDecoys(req Request) Request {
	var texts []string
	for _, d := range decoysOf(req) {
		named := func(text string) bool { return strings.TrimSuffix(text, "/") == d.target }
		if _, _, ok := v.at(d.target); ok && d.inPlace(req) && !slices.ContainsFunc(req.Masks, named) {
			texts = append(texts, d.text())
		}
	}
	if len(texts) > 0 {
		req.Masks = append(slices.Clone(req.Masks), texts...)
	}
	return req
}

// resolveDecoys names decoys by what they hide, as the masks that they stand for, and
// leaves out those that stand for nothing.
func (v view) resolveDecoys(req Request) Request {
	if req.Observe == nil || len(req.Observe.Decoys) == 0 {
		return req
	}
	observe := *req.Observe
	observe.Decoys = nil
	for _, d := range decoysOf(req) {
		if d.inPlace(req) {
			inside, info, err := v.follow(d.target)
			if err != nil {
				continue // it is not there, or there is no input; everything else the masks have told
			}
			d = decoy{inside, info.IsDir()}
			if slices.Contains(observe.Decoys, d.text()) {
				continue // another link to the same
			}
		}
		observe.Decoys = append(observe.Decoys, d.text())
	}
	req.Observe = &observe
	return req
}
