package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
)

// Bounds of what is read from an image. Hitting one is an error: a list that
// leaves something out would be untrue.
const (
	maxTarEntries  = 20_000_000
	maxDpkgStatus  = 64 << 20
	maxPythonHead  = 256 << 10
	maxCondaFile   = 32 << 20
	maxSystemFile  = 64 << 10
	maxPackageRead = 1 << 30
)

// contents are what an image says of itself.
type contents struct {
	Packages Packages
	// System is the ID and the version of os-release, such as "debian 12".
	System string
}

var (
	pythonFile = regexp.MustCompile(`(^|/)(dist|site)-packages/[^/]*\.(dist-info/METADATA|egg-info|egg-info/PKG-INFO)$`)
	condaFile  = regexp.MustCompile(`(^|/)conda-meta/[^/]+\.json$`)
)

// readContents reads the tar archive of a root file system, which is not
// trusted: nothing of it is unpacked, and what is read is bounded.
func readContents(r io.Reader) (contents, error) {
	s := contentScanner{byPath: map[string]Package{}}
	archive := tar.NewReader(r)
	for n := 0; ; n++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return contents{sortedPackages(s.all), s.system}, nil
		}
		if err == nil && n >= maxTarEntries {
			err = fmt.Errorf("has more than %d files", maxTarEntries)
		}
		if err == nil {
			err = s.entry(header, archive)
		}
		if err != nil {
			return contents{}, fmt.Errorf("reading the file system of the image: %w", err)
		}
	}
}

// A contentScanner picks the files that name packages.
type contentScanner struct {
	all    []Package
	system string
	// byPath holds what was found in the files so far, for hard links to them.
	byPath map[string]Package
	read   int64
}

func (s *contentScanner) entry(header *tar.Header, body io.Reader) error {
	file := path.Clean("/" + header.Name)[1:]
	kind, limit := kindOf(file)
	if kind == "" {
		return nil
	}
	if header.Typeflag == tar.TypeLink {
		return s.link(kind, file, path.Clean("/" + header.Linkname)[1:])
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	s.read += min(header.Size, limit)
	switch {
	case s.read > maxPackageRead:
		return fmt.Errorf("more than %d bytes say what is installed", int64(maxPackageRead))
	case header.Size > limit && kind != kindPython: // the head is enough of that
		return fmt.Errorf("%.200q has more than %d bytes", file, limit)
	}
	return s.file(kind, file, io.LimitReader(body, limit))
}

const (
	kindDpkg   = "dpkg"
	kindPython = "python"
	kindConda  = "conda"
	kindSystem = "system"
)

// kindOf says what a file tells, and how much of it is read.
func kindOf(file string) (kind string, limit int64) {
	switch {
	case file == "var/lib/dpkg/status":
		return kindDpkg, maxDpkgStatus
	case file == "usr/lib/os-release", file == "etc/os-release":
		return kindSystem, maxSystemFile
	case pythonFile.MatchString(file):
		return kindPython, maxPythonHead
	case condaFile.MatchString(file):
		return kindConda, maxCondaFile
	}
	return "", 0
}

func (s *contentScanner) file(kind, file string, body io.Reader) error {
	switch kind {
	case kindDpkg:
		debs, err := parseDpkgStatus(body)
		if err != nil {
			return err
		}
		s.all = append(s.all, debs...)
		return s.checkCount()
	case kindSystem:
		system, err := parseSystem(body)
		if s.system == "" {
			s.system = system
		}
		return err
	case kindPython:
		p, err := parsePythonMetadata(body, file)
		return errors.Join(err, s.add(file, p))
	default:
		p, err := parseConda(body, file)
		return errors.Join(err, s.add(file, p))
	}
}

// link is a second name of a file. Package managers link from their caches.
func (s *contentScanner) link(kind, file, target string) error {
	p, known := s.byPath[target]
	switch {
	case kind == kindDpkg:
		return fmt.Errorf("%q is a hard link", file)
	case kind == kindSystem:
		return nil
	case known:
	case kind == kindPython:
		p = pythonFromPath(file)
	default:
		p = condaFromPath(file)
	}
	return s.add(file, p)
}

func (s *contentScanner) add(file string, p Package) error {
	s.all, s.byPath[file] = append(s.all, p), p
	return s.checkCount()
}

func (s *contentScanner) checkCount() error {
	if len(s.all) > maxPackages {
		return fmt.Errorf("has more than %d packages", maxPackages)
	}
	return nil
}
