package runs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox"
)

// look returns the surroundings of a run: the directories of its request, and what the catalog and
// the lock say about images. Nothing is read before a hint asks for it.
func look(s settings.Settings, req sandbox.Request, image string) surroundings {
	exists := func(dir, name string) (string, bool) {
		if !filepath.IsLocal(name) {
			return "", false
		}
		found := filepath.Join(dir, name)
		info, err := os.Lstat(found)
		return found, err == nil && (info.IsDir() || info.Mode().IsRegular())
	}
	return surroundings{
		beside: func(name string) (string, bool) { return exists(filepath.Dir(req.Script), name) },
		inInput: func(name string) bool {
			_, ok := exists(req.Input, name)
			return ok && req.Input != ""
		},
		imageWith: func(names []string) string {
			catalog, err := s.Catalog()
			if err != nil {
				return ""
			}
			held, _, err := s.Lock()
			if err != nil {
				held = lock.Lock{}
			}
			return imageWith(catalog, held, names, image)
		},
		linkOut: linkOut,
		begin:   func(path string) []byte { return head(path, mostShebang) },
	}
}

// mostLinks is how many links are followed on one path.
const mostLinks = 40

// linkOut returns the first symbolic link on a path below a directory that leads out of the directory, with
// its target. Both are empty if there is none.
func linkOut(dir, below string) (link, target string) {
	at, rest := ".", strings.Split(filepath.Clean(below), string(filepath.Separator))
	for followed := 0; len(rest) > 0 && followed < mostLinks; {
		at, rest = filepath.Join(at, rest[0]), rest[1:]
		target, err := os.Readlink(filepath.Join(dir, at))
		if err != nil { // not a link, or nothing
			continue
		}
		inside := filepath.Join(filepath.Dir(at), target)
		if filepath.IsAbs(target) || !filepath.IsLocal(inside) {
			return at, target
		}
		at, rest, followed = ".", append(strings.Split(inside, string(filepath.Separator)), rest...), followed+1
	}
	return "", ""
}

// imageWith returns the first image, other than the given one, that has one of the packages.
func imageWith(catalog images.Catalog, held lock.Lock, names []string, not string) string {
	all := append(catalog.Names(), held.Names()...)
	for _, name := range all {
		if name != not && slices.ContainsFunc(packagesIn(catalog, held, name), func(p string) bool { return slices.Contains(names, p) }) {
			return name
		}
	}
	return ""
}

// packagesIn lists the Python packages that an image has, as far as its lock or its recipe say so. The
// name of a base counts as a package: pytorch/pytorch has PyTorch.
func packagesIn(catalog images.Catalog, held lock.Lock, name string) []string {
	var names []string
	debian := func(name string) {
		if python, ok := strings.CutPrefix(name, "python3-"); ok {
			names = append(names, python)
		}
	}
	locked, _ := held.Lookup(name)
	for _, p := range locked.Packages {
		if p.Kind == packages.Deb {
			debian(p.Name)
		} else {
			names = append(names, p.Name)
		}
	}
	if !slices.Contains(catalog.Names(), name) {
		return names
	}
	entry, _ := catalog.Lookup(name)
	if entry.Base.Bootstrap != nil {
		for _, p := range entry.Base.Bootstrap.Packages {
			debian(p)
		}
	}
	repository, _, _ := strings.Cut(entry.Base.Reference, ":")
	names = append(names, strings.Split(repository, "/")...)
	if entry.Requirements != "" {
		for line := range strings.Lines(evalbox.Requirements) {
			if name, _, ok := strings.Cut(line, "=="); ok && !strings.HasPrefix(line, "#") {
				names = append(names, strings.TrimSpace(name))
			}
		}
	}
	return names
}
