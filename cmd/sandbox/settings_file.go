package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/viper"
	"gopkg.in/yaml.v3"

	"github.com/evalbox/evalbox/internal/format"
)

// settingsSchema is the version of the settings file that this build reads.
const settingsSchema = "evalbox/settings/v1"

// parseLayer reads the text of a settings file. All unknown keys, and in a file
// that is not trusted all keys that need trust, are reported, joined.
func parseLayer(data []byte, source string, trusted bool) (layer, error) {
	lines, err := keyLines(data)
	if err != nil {
		return layer{}, &fileError{fileSettings, source, err}
	}
	file := viper.New()
	file.SetConfigType("yaml")
	if err := file.ReadConfig(bytes.NewReader(data)); err != nil {
		return layer{}, &fileError{fileSettings, source, errors.New(format.OneLine(err.Error()))}
	}

	l := layer{values: map[string]value{}}
	var errs []error
	for _, name := range sortedByLine(lines) {
		at := fmt.Sprintf("%s:%d", source, lines[name])
		text, err := valueText(name, file.Get(name))
		if name == "schema" {
			if text != settingsSchema {
				errs = append(errs, &settingError{Source: at, Key: name, Value: text,
					Err: fmt.Errorf("this version reads %s", settingsSchema)})
			}
			continue
		}
		k, known := keyNamed(name)
		switch {
		case !known:
			errs = append(errs, &settingError{Source: at, Key: name,
				Err: errors.New("unknown key"), Advice: didYouMean(name, keyNames())})
		case k.trusted && !trusted:
			errs = append(errs, &settingError{Source: at, Key: name,
				Err:    errors.New("is not taken from ./sandbox.yaml, which may be somebody else's"),
				Advice: "set it in the user's configuration, with " + k.variable() + " or, for this file, with --config"})
		case err != nil:
			errs = append(errs, &settingError{Source: at, Key: name, Err: err})
		default:
			shown := at
			if source == shippedSource {
				shown = source
			}
			l.values[name] = value{text: text, source: shown, key: name}
		}
	}
	return l, errors.Join(errs...)
}

// keyLines lists the keys of a YAML document as written, levels joined by dots,
// with their lines. viper does not keep lines, and folds case.
func keyLines(data []byte) (map[string]int, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, errors.New(format.OneLine(err.Error()))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be one YAML document")
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		if root.Tag == "!!null" {
			return nil, nil // only comments
		}
		return nil, errors.New("must be a mapping of keys to values")
	}
	lines := map[string]int{}
	collectKeys(root, "", lines)
	return lines, nil
}

func collectKeys(node *yaml.Node, prefix string, lines map[string]int) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, below := node.Content[i], node.Content[i+1]
		if below.Kind == yaml.MappingNode && len(below.Content) > 0 {
			collectKeys(below, prefix+name.Value+".", lines)
			continue
		}
		lines[prefix+name.Value] = name.Line
	}
}

func sortedByLine(lines map[string]int) []string {
	var names []string
	for name := range lines {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if lines[a] != lines[b] {
			return lines[a] - lines[b]
		}
		return strings.Compare(a, b)
	})
	return names
}

// valueText is a value as text; that of a list key may be a list.
func valueText(name string, v any) (string, error) {
	k, _ := keyNamed(name)
	parts, isList := v.([]any)
	if !k.list || !isList {
		return scalar(v)
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		text, ok := part.(string)
		if !ok || text == "" || strings.ContainsRune(text, filepath.ListSeparator) {
			return "", fmt.Errorf("must be a list of texts without %q", filepath.ListSeparator)
		}
		texts[i] = text
	}
	return strings.Join(texts, string(filepath.ListSeparator)), nil
}

// scalar renders a YAML value as the text that a setter reads.
func scalar(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	case nil:
		return "", errors.New("has no value")
	default:
		return "", errors.New("must be a single value")
	}
}

func keyNames() []string {
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
	}
	return names
}
