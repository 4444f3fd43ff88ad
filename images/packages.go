package images

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A PackageKind says who installed a package.
type PackageKind string

// The kinds of packages that are read from an image.
const (
	PackageDeb    PackageKind = "deb"
	PackagePython PackageKind = "python"
	PackageConda  PackageKind = "conda"
)

// A Package is one package of an image, as the image says of itself.
type Package struct {
	Kind PackageKind `json:"kind"`
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

func comparePackages(a, b Package) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Arch, b.Arch), cmp.Compare(a.Version, b.Version))
}

// Packages is a list of packages, sorted, each once.
type Packages []Package

// sortedPackages makes the list of packages that may come in any order.
func sortedPackages(all []Package) Packages {
	slices.SortFunc(all, comparePackages)
	return slices.Compact(all)
}

// Text is the canonical text of the list: a line "KIND NAME VERSION [ARCH]" for
// each package.
func (p Packages) Text() string {
	var text strings.Builder
	for _, one := range p {
		text.WriteString(one.String())
		text.WriteByte('\n')
	}
	return text.String()
}

// SHA256 is the SHA-256 of the canonical text, 64 hexadecimal digits.
func (p Packages) SHA256() string { return sha256Hex(p.Text()) }

func sha256Hex(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// maxPackages bounds a list, far above what an image can use.
const maxPackages = 100_000

// parsePackages reads the canonical text of a list, and nothing else.
func parsePackages(text string) (Packages, error) {
	var all Packages
	number := 0
	for line := range strings.Lines(text) {
		number++
		p, err := parsePackage(strings.TrimSuffix(line, "\n"))
		if err == nil && len(all) > 0 && comparePackages(all[len(all)-1], p) >= 0 {
			err = fmt.Errorf("is out of order or there twice")
		}
		if err == nil && number > maxPackages {
			err = fmt.Errorf("is one more than %d packages", maxPackages)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d %.100q: %w", number, line, err)
		}
		all = append(all, p)
	}
	return all, nil
}

func parsePackage(line string) (Package, error) {
	fields := strings.Split(line, " ")
	if len(fields) != 3 && len(fields) != 4 {
		return Package{}, fmt.Errorf("must be KIND NAME VERSION [ARCH]")
	}
	p := Package{Kind: PackageKind(fields[0]), Name: fields[1], Version: fields[2]}
	if len(fields) == 4 {
		p.Arch = fields[3]
	}
	if !slices.Contains([]PackageKind{PackageDeb, PackagePython, PackageConda}, p.Kind) {
		return Package{}, fmt.Errorf("kind must be deb, python or conda")
	}
	for _, word := range fields[1:] {
		if word == "" || !isPlain(word) {
			return Package{}, fmt.Errorf("%.50q is no plain word", word)
		}
	}
	return p, nil
}

const maxWord = 200

// plainWord makes text of an image fit to be a word of a list: bounded, and of
// letters, digits and the signs that names and versions have.
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

// isPlain says that nothing of a word has to be changed. Every run asks it of
// every word of its lock.
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

var pythonSeparators = regexp.MustCompile(`[-_.]+`)

// pythonName is the normalised name of a Python package (PEP 503).
func pythonName(name string) string {
	return strings.ToLower(pythonSeparators.ReplaceAllString(name, "-"))
}
