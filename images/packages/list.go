// Package packages lists the installed software of an image: packages of Debian, Python and
// conda, from the tar archive of its file system. Nothing of the image is run or unpacked.
package packages

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// A Kind says which package manager installed a package.
type Kind string

// The kinds of packages that are read from an image.
const (
	Deb    Kind = "deb"
	Python Kind = "python"
	Conda  Kind = "conda"
)

// A Package is one package of an image, according to the image.
type Package struct {
	Kind Kind `json:"kind"`
	// Name of a Python package is normalised: lower case, words joined by -.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Arch is the architecture of a deb, empty for the other kinds.
	Arch string `json:"arch,omitempty"`
}

// String is the line of the package in the text of a list.
func (p Package) String() string {
	text := string(p.Kind) + " " + p.Name + " " + p.Version
	if p.Arch != "" {
		text += " " + p.Arch
	}
	return text
}

func compare(a, b Package) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Arch, b.Arch), cmp.Compare(a.Version, b.Version))
}

// A List is sorted, and has each package once.
type List []Package

// Text is the canonical text of the list: a line "KIND NAME VERSION [ARCH]" for each
// package.
func (l List) Text() string {
	var text strings.Builder
	for _, p := range l {
		text.WriteString(p.String() + "\n")
	}
	return text.String()
}

// SHA256 is the SHA-256 of the canonical text, 64 hexadecimal digits.
func (l List) SHA256() string { return digest.FromString(l.Text()).Encoded() }

// maxPackages bounds a list, far above what an image can use.
const maxPackages = 100_000

// Parse reads the canonical text of a list, and refuses any other text.
func Parse(text string) (List, error) {
	var all List
	for line := range strings.Lines(text) {
		p, err := parsePackage(strings.TrimSuffix(line, "\n"))
		if err == nil && len(all) > 0 && compare(all[len(all)-1], p) >= 0 {
			err = errors.New("is out of order or there twice")
		}
		if err == nil && len(all) == maxPackages {
			err = fmt.Errorf("is one more than %d packages", maxPackages)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d %.100q: %w", len(all)+1, line, err)
		}
		all = append(all, p)
	}
	return all, nil
}

func parsePackage(line string) (Package, error) {
	fields := strings.Split(line, " ")
	if len(fields) != 3 && len(fields) != 4 {
		return Package{}, errors.New("must be KIND NAME VERSION [ARCH]")
	}
	p := Package{Kind: Kind(fields[0]), Name: fields[1], Version: fields[2]}
	if len(fields) == 4 {
		p.Arch = fields[3]
	}
	if !slices.Contains([]Kind{Deb, Python, Conda}, p.Kind) {
		return Package{}, errors.New("kind must be deb, python or conda")
	}
	for _, word := range fields[1:] {
		if word == "" || !isPlain(word) {
			return Package{}, fmt.Errorf("%.50q is not a plain word", word)
		}
	}
	return p, nil
}

const maxWord = 200

// plainWord turns text of an image into a word of a list: bounded, and of letters, digits
// and the signs of names and versions.
func plainWord(text string) string {
	if isPlain(text) {
		return text
	}
	text = strings.Map(func(r rune) rune {
		if r < 128 && isPlain(string(r)) {
			return r
		}
		return '_'
	}, text)
	return text[:min(len(text), maxWord)]
}

// isPlain reports whether plainWord would not change a word. It is fast, because every run
// calls it for every word of its lock.
func isPlain(word string) bool {
	for i := range len(word) {
		switch c := word[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case c == '.', c == '_', c == '+', c == '-', c == '~', c == ':', c == '!':
		default:
			return false
		}
	}
	return len(word) <= maxWord
}

// PythonVersion returns the version of Python 3, according to the environment (images of
// Docker's library), the packages of conda, or those of Debian. It is empty without Python.
func PythonVersion(env []string, list List) string {
	for _, pair := range env {
		if version, ok := strings.CutPrefix(pair, "PYTHON_VERSION="); ok {
			return plainWord(version)
		}
	}
	version := ""
	for _, p := range list {
		switch {
		case p.Kind == Conda && p.Name == "python":
			return p.Version
		case p.Kind == Deb && p.Name == "python3":
			version, _, _ = strings.Cut(p.Version, "-")
		}
	}
	return version
}

// A Diff is the difference of two lists of packages.
type Diff struct {
	Added   []Package `json:"added"`
	Removed []Package `json:"removed"`
	Changed []Change  `json:"changed"`
}

// A Change is a package whose version differs.
type Change struct {
	Package

	// NewVersion is the version in the later list.
	NewVersion string `json:"new_version"`
}

// Compare compares two lists. The result is sorted, and its lists are never nil.
func Compare(before, after List) Diff {
	d := Diff{Added: []Package{}, Removed: []Package{}, Changed: []Change{}}
	gone, come := without(before, after), without(after, before)
	for len(gone) > 0 && len(come) > 0 {
		old, next := gone[0], come[0]
		switch c := compare(unversioned(old), unversioned(next)); {
		case c < 0:
			d.Removed, gone = append(d.Removed, old), gone[1:]
		case c > 0:
			d.Added, come = append(d.Added, next), come[1:]
		default:
			d.Changed = append(d.Changed, Change{old, next.Version})
			gone, come = gone[1:], come[1:]
		}
	}
	d.Removed, d.Added = append(d.Removed, gone...), append(d.Added, come...)
	return d
}

// without returns the packages of a sorted list that another one does not have.
func without(list, other List) List {
	return slices.DeleteFunc(slices.Clone(list), func(p Package) bool {
		_, found := slices.BinarySearchFunc(other, p, compare)
		return found
	})
}

func unversioned(p Package) Package {
	p.Version = ""
	return p
}

// Empty reports whether the lists are the same.
func (d Diff) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// Lines returns the difference as lines: "+ " for an added package, "- " for a removed one,
// "~ " for another version.
func (d Diff) Lines() []string {
	var lines []string
	for _, p := range d.Added {
		lines = append(lines, "+ "+p.String())
	}
	for _, p := range d.Removed {
		lines = append(lines, "- "+p.String())
	}
	for _, p := range d.Changed {
		lines = append(lines, "~ "+p.String()+" -> "+p.NewVersion)
	}
	return lines
}
