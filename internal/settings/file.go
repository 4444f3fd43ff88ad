package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
)

const (
	// fileSchema is the version of the settings file that this build reads.
	fileSchema = "evalbox/settings/v1"
	// maxFile bounds a settings file, maxCatalog an image catalog.
	maxFile, maxCatalog = 1 << 20, 16 << 20
)

// fileError is a file that cannot be used.
func fileError(what, path string, err error, advice string) error {
	return &Error{Err: fmt.Errorf("%s %s: %w", what, path, fsx.Cause(err)), Advice: advice}
}

// shippedValues are the embedded defaults.
var shippedValues = sync.OnceValues(func() (map[string]any, error) {
	return parseFile(configs.Settings(), "default", fromDefault, true)
})

// readFile reads the values of a settings file, by key. A file that does not exist has
// none, unless it must exist.
func readFile(file string, from layer, trusted, must bool) (map[string]any, error) {
	if file == "" {
		return nil, nil
	}
	data, err := fsx.Read(file, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !must:
		return nil, nil
	case err != nil:
		return nil, unusable(file, err)
	}
	return parseFile(data, file, from, trusted)
}

func unusable(file string, err error) error {
	return fileError("settings", file, err, "see where settings come from with: sandbox help config")
}

// parseFile reads the text of a settings file. All unknown keys, and in a file
// that is not trusted all keys that need trust, are reported, joined.
func parseFile(data []byte, source string, from layer, trusted bool) (map[string]any, error) {
	entries, err := parseEntries(data)
	if err != nil {
		return nil, unusable(source, errors.New(text.OneLine(err.Error())))
	}
	values := map[string]any{}
	var errs []error
	for _, e := range entries {
		v := value{key: e.name, source: fmt.Sprintf("%s:%d", source, e.line), from: from}
		report := func(v value, rule, advice string) {
			problem := v.problem(errors.New(rule))
			problem.Advice = advice
			errs = append(errs, problem)
		}
		k, known := keyNamed(e.name)
		text, err := valueText(e.node, k.separator)
		switch {
		case e.name == "schema" && text == fileSchema:
		case e.name == "schema":
			v.text = text
			report(v, "this version reads "+fileSchema, "")
		case !known:
			report(v, "unknown key", didYouMean(e.name, keyNames()))
		case k.trusted && !trusted:
			report(v, "is not taken from ./sandbox.yaml, which may be somebody else's",
				"set it in the user's configuration, with "+k.variable()+" or, for this file, with --config")
		case err != nil:
			report(v, err.Error(), "")
		default:
			v.text = text
			if from == fromDefault {
				v.source = source
			}
			values[e.name] = v
		}
	}
	return values, errors.Join(errs...)
}

// An entry is one key of a file as it is written, levels joined by dots. viper would read
// the file too, but it keeps no lines and folds case.
type entry struct {
	name string
	line int
	node *yaml.Node
}

func parseEntries(data []byte) ([]entry, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be one YAML document")
	}
	root := document.Content[0]
	switch {
	case root.Tag == "!!null":
		return nil, nil // only comments
	case root.Kind != yaml.MappingNode:
		return nil, errors.New("must be a mapping of keys to values")
	}
	// A node may have the same key twice; a map may not.
	return entriesBelow(root, ""), root.Decode(&map[string]any{})
}

func entriesBelow(node *yaml.Node, prefix string) (all []entry) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, below := node.Content[i], node.Content[i+1]
		if below.Kind == yaml.MappingNode && len(below.Content) > 0 {
			all = append(all, entriesBelow(below, prefix+name.Value+".")...)
			continue
		}
		all = append(all, entry{prefix + name.Value, name.Line, below})
	}
	return all
}

// valueText is a YAML value as the text that a setter reads. A separator joins the parts of a
// list; without one there may be none.
func valueText(node *yaml.Node, separator string) (string, error) {
	var v any
	if err := node.Decode(&v); err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	case nil:
		return "", errors.New("has no value")
	case []any:
		if separator != "" {
			return listText(v, separator)
		}
	}
	return "", errors.New("must be a single value")
}

func listText(parts []any, separator string) (string, error) {
	texts := make([]string, len(parts))
	for i, part := range parts {
		text, ok := part.(string)
		if !ok || text == "" || strings.Contains(text, separator) {
			return "", fmt.Errorf("must be a list of texts without '%s'", separator)
		}
		texts[i] = text
	}
	return strings.Join(texts, separator), nil
}
