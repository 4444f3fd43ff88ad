package images

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"gopkg.in/yaml.v3"
)

// document is the wire form of a catalog.
type document struct {
	Schema  string           `yaml:"schema"`
	Default string           `yaml:"default"`
	Images  map[string]Entry `yaml:"images"`
}

// LoadCatalog reads a catalog. Source is the name of the file in messages. The
// format is strict: an unknown key, a key given twice and a second document are
// errors. The error joins every problem that was found.
func LoadCatalog(data []byte, source string) (Catalog, error) {
	var version struct {
		Schema string `yaml:"schema"`
	}
	if err := yaml.Unmarshal(data, &version); err != nil {
		return Catalog{}, yamlError(source, err)
	}
	if version.Schema != Schema {
		return Catalog{}, fmt.Errorf("%s: schema: want %q, have %q", source, Schema, version.Schema)
	}
	var doc document
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil {
		return Catalog{}, yamlError(source, err)
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return Catalog{}, fmt.Errorf("%s: want one document, have more", source)
	}
	if err := validate(source, doc); err != nil {
		return Catalog{}, err
	}
	c := Catalog{Source: source, Default: doc.Default, entries: map[string]Entry{}}
	for name, e := range doc.Images {
		e.Name = name
		c.entries[name] = e
	}
	return c, nil
}

var (
	yamlLine    = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)
	yamlUnknown = regexp.MustCompile(`field (\S+) not found in type \S+`)
)

// yamlError gives every problem of the decoder as "file:line: problem".
func yamlError(source string, err error) error {
	problems := []string{err.Error()}
	if te, ok := errors.AsType[*yaml.TypeError](err); ok {
		problems = te.Errors
	}
	errs := make([]error, len(problems))
	for i, p := range problems {
		where := source
		if m := yamlLine.FindStringSubmatch(p); m != nil {
			where, p = source+":"+m[1], p[len(m[0]):]
		}
		errs[i] = fmt.Errorf("%s: %s", where, yamlUnknown.ReplaceAllString(p, `unknown key "$1"`))
	}
	return errors.Join(errs...)
}
