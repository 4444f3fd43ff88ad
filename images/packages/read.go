package packages

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"sync"
)

// Bounds of the files of an image. Exceeding one is an error, because the list would be
// incomplete.
const (
	maxTarEntries  = 20_000_000
	maxDpkgStatus  = 64 << 20
	maxPythonHead  = 256 << 10
	maxCondaFile   = 32 << 20
	maxSystemFile  = 64 << 10
	maxPackageRead = 1 << 30
)

// Contents are the packages and the system of an image, according to the image.
type Contents struct {
	Packages List
	// System is the ID and the version of os-release, such as "debian 12".
	System string
}

const dpkgStatus = "var/lib/dpkg/status"

var (
	pythonFile = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(^|/)(dist|site)-packages/[^/]*\.(dist-info/METADATA|egg-info|egg-info/PKG-INFO)$`)
	})
	condaFile = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(^|/)conda-meta/[^/]+\.json$`) })
)

// Read reads the tar archive of an untrusted root file system. It unpacks nothing, and bounds
// every file that it reads.
func Read(r io.Reader) (Contents, error) {
	s := scanner{byPath: map[string]Package{}}
	archive := tar.NewReader(r)
	for n := 0; ; n++ {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			slices.SortFunc(s.all, compare)
			return Contents{slices.Compact(s.all), s.system}, nil
		}
		if err == nil && n >= maxTarEntries {
			err = fmt.Errorf("has more than %d files", maxTarEntries)
		}
		if err == nil {
			err = s.entry(header, archive)
		}
		if err == nil && len(s.all) > maxPackages {
			err = fmt.Errorf("has more than %d packages", maxPackages)
		}
		if err != nil {
			return Contents{}, fmt.Errorf("reading the file system of the image: %w", err)
		}
	}
}

// A scanner picks the files that name packages.
type scanner struct {
	all    List
	system string
	// byPath holds the packages of the files so far, for hard links to them.
	byPath map[string]Package
	bytes  int64 // of all files that were parsed
}

func (s *scanner) entry(header *tar.Header, body io.Reader) error {
	file := path.Clean("/" + header.Name)[1:]
	isPython := pythonFile().MatchString(file)
	switch {
	case file == dpkgStatus:
		if header.Typeflag == tar.TypeLink {
			return fmt.Errorf("%q is a hard link", file)
		}
		return s.read(header, body, maxDpkgStatus, func(r io.Reader) error {
			debs, err := parseDpkgStatus(r)
			s.all = append(s.all, debs...)
			return err
		})
	case file == "usr/lib/os-release", file == "etc/os-release":
		return s.read(header, body, maxSystemFile, func(r io.Reader) error {
			system, err := parseSystem(r)
			s.system = cmp.Or(s.system, system)
			return err
		})
	case header.Typeflag == tar.TypeLink && isPython:
		s.link(header, file, pythonFromPath)
	case isPython:
		head := *header
		head.Size = min(head.Size, maxPythonHead) // the head is enough of that
		return s.read(&head, body, maxPythonHead, func(r io.Reader) error {
			p, err := parsePythonMetadata(r, file)
			s.add(file, p)
			return err
		})
	case !condaFile().MatchString(file):
	case header.Typeflag == tar.TypeLink:
		s.link(header, file, condaFromPath)
	default:
		return s.read(header, body, maxCondaFile, func(r io.Reader) error {
			p, err := parseConda(r, file)
			s.add(file, p)
			return err
		})
	}
	return nil
}

// read parses a regular file of at most limit bytes.
func (s *scanner) read(header *tar.Header, body io.Reader, limit int64, parse func(io.Reader) error) error {
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	s.bytes += min(header.Size, limit)
	switch {
	case s.bytes > maxPackageRead:
		return fmt.Errorf("more than %d bytes say what is installed", int64(maxPackageRead))
	case header.Size > limit:
		return fmt.Errorf("%.200q has more than %d bytes", path.Clean("/" + header.Name)[1:], limit)
	}
	return parse(io.LimitReader(body, limit))
}

// link adds a second name of a file. Package managers link from their caches.
func (s *scanner) link(header *tar.Header, file string, fromPath func(string) Package) {
	p, known := s.byPath[path.Clean("/" + header.Linkname)[1:]]
	if !known {
		p = fromPath(file)
	}
	s.add(file, p)
}

func (s *scanner) add(file string, p Package) { s.all, s.byPath[file] = append(s.all, p), p }
