package images

import "github.com/evalbox/evalbox/internal/strict"

// document is the wire form of a catalog.
type document struct {
	Schema  string           `yaml:"schema"`
	Default string           `yaml:"default"`
	Images  map[string]Entry `yaml:"images"`
}

// LoadCatalog reads a catalog. Source is the name of the file in messages. The
// format is strict: an unknown key, a key given twice, an alias and a second document
// are errors. The error joins every problem that was found.
func LoadCatalog(data []byte, source string) (Catalog, error) {
	var doc document
	if problems := strict.Decode(data, &doc, strict.Options{Schema: Schema, Lenient: true}); len(problems) > 0 {
		return Catalog{}, strict.Join(source, problems)
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
