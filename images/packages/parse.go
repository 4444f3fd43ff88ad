package packages

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"path"
	"regexp"
	"strings"
	"sync"
)

// unknownWord replaces a missing name or version: such a package is listed too.
const unknownWord = "unknown"

// parseDpkgStatus reads the database of dpkg. Only installed packages count. The caller
// bounds the reader.
func parseDpkgStatus(r io.Reader) ([]Package, error) {
	var all []Package
	lines := newHeaderReader(r)
	for {
		fields, err := lines.next()
		if fields["Package"] != "" && fields["Status"] == "install ok installed" {
			all = append(all, newPackage(Deb, fields["Package"], fields["Version"], fields["Architecture"]))
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// parsePythonMetadata reads METADATA or PKG-INFO: only its head matters. Missing fields are
// taken from the directory, NAME-VERSION.dist-info.
func parsePythonMetadata(r io.Reader, file string) (Package, error) {
	fields, err := newHeaderReader(r).next()
	if err != nil && !errors.Is(err, io.EOF) {
		return Package{}, err
	}
	fallback := pythonFromPath(file)
	name, version := cmp.Or(fields["Name"], fallback.Name), cmp.Or(fields["Version"], fallback.Version)
	return newPackage(Python, pythonName(name), version, ""), nil
}

var pythonSeparators = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[-_.]+`) })

// pythonName is the normalised name of a Python package (PEP 503).
func pythonName(name string) string {
	return strings.ToLower(pythonSeparators().ReplaceAllString(name, "-"))
}

// pythonFromPath takes name and version from the path of a metadata file.
func pythonFromPath(file string) Package {
	dir := file
	if base := path.Base(file); base == "METADATA" || base == "PKG-INFO" {
		dir = path.Dir(file)
	}
	dir = strings.TrimSuffix(strings.TrimSuffix(path.Base(dir), ".dist-info"), ".egg-info")
	name, rest, _ := strings.Cut(dir, "-")
	version, _, _ := strings.Cut(rest, "-") // an egg's goes on with the Python
	return newPackage(Python, pythonName(name), version, "")
}

// parseConda reads a file of conda-meta. Missing fields are taken from its name,
// NAME-VERSION-BUILD.json.
func parseConda(r io.Reader, file string) (Package, error) {
	var meta struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	if err := json.NewDecoder(r).Decode(&meta); err != nil || meta.Name == "" {
		_, err := io.Copy(io.Discard, r) // nil if the text is not JSON, an error if the stream broke
		return condaFromPath(file), err
	}
	return newPackage(Conda, meta.Name, meta.Version, ""), nil
}

func condaFromPath(file string) Package {
	words := strings.Split(strings.TrimSuffix(path.Base(file), ".json"), "-")
	if len(words) < 3 {
		return newPackage(Conda, strings.Join(words, "-"), "", "")
	}
	n := len(words)
	return newPackage(Conda, strings.Join(words[:n-2], "-"), words[n-2], "")
}

// parseSystem reads os-release: "debian 12".
func parseSystem(r io.Reader) (string, error) {
	fields := map[string]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		fields[name] = strings.Trim(value, `"'`)
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	var words []string
	for _, name := range []string{"ID", "VERSION_ID"} {
		if word := plainWord(fields[name]); word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, " "), nil
}

func newPackage(kind Kind, name, version, arch string) Package {
	return Package{kind, plainWord(cmp.Or(name, unknownWord)), plainWord(cmp.Or(version, unknownWord)), plainWord(arch)}
}

// A headerReader reads paragraphs of lines "Name: value", as dpkg and Python write them.
// It cuts long lines and skips continuation lines: the fields that matter have neither.
type headerReader struct{ r *bufio.Reader }

func newHeaderReader(r io.Reader) headerReader { return headerReader{bufio.NewReaderSize(r, 4096)} }

// next returns the fields of the next paragraph. The error is io.EOF with the last one.
func (h headerReader) next() (map[string]string, error) {
	fields := map[string]string{}
	for {
		line, cut, err := h.r.ReadLine()
		text := string(line)
		for cut && err == nil {
			_, cut, err = h.r.ReadLine()
		}
		if err != nil {
			return fields, err
		}
		if strings.TrimSpace(text) == "" {
			if len(fields) > 0 {
				return fields, nil
			}
			continue
		}
		name, value, ok := strings.Cut(text, ":")
		if _, have := fields[name]; ok && !have && !strings.HasPrefix(text, " ") && !strings.HasPrefix(text, "\t") {
			fields[name] = strings.TrimSpace(value)
		}
	}
}
