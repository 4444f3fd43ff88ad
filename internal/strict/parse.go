package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

const (
	// maxDepth bounds how deep mappings and lists are nested.
	maxDepth = 64
	// maxNodes bounds how many keys and values a document has: a node takes a hundred
	// times the memory of its text.
	maxNodes = 100_000
)

var (
	errDeep = errors.New("is nested too deep")
	errMany = fmt.Errorf("has more than %d keys and values", maxNodes)
)

// parse returns the one mapping of a document; nil if it is empty.
func parse(text []byte) (*yaml.Node, *Problem) {
	if !utf8.Valid(text) {
		return nil, &Problem{Rule: "is not UTF-8"}
	}
	root, problem := parseAny(text)
	switch {
	case problem != nil:
		return nil, problem
	case root == nil, root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null":
		return nil, nil
	case root.Kind != yaml.MappingNode:
		return nil, &Problem{Line: root.Line, Rule: "must be a mapping of keys to values"}
	}
	return root, nil
}

// parseAny reads JSON with a parser of its own, because YAML has other escapes.
func parseAny(text []byte) (*yaml.Node, *Problem) {
	if first := bytes.TrimLeftFunc(text, unicode.IsSpace); len(first) > 0 && first[0] == '{' && json.Valid(text) {
		return parseJSON(text)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, syntaxProblem(err)
	}
	var more yaml.Node
	if err := decoder.Decode(&more); err == nil {
		return nil, &Problem{Line: more.Line, Rule: "must be one document, has more"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxProblem(err)
	}
	switch {
	case len(document.Content) == 0:
		return nil, nil
	case !fewer(&document, new(maxNodes)):
		return nil, &Problem{Rule: errMany.Error()}
	}
	return document.Content[0], nil
}

// fewer counts nodes down, and says whether there is room for more.
func fewer(n *yaml.Node, room *int) bool {
	for _, child := range n.Content {
		if *room--; *room < 0 || !fewer(child, room) {
			return false
		}
	}
	return true
}

var syntaxLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^yaml: (?:line (\d+): )?`) })

func syntaxProblem(err error) *Problem {
	text := err.Error()
	m := syntaxLine().FindStringSubmatch(text)
	if m == nil {
		return &Problem{Rule: text}
	}
	line, _ := strconv.Atoi(m[1]) // the pattern has digits or nothing
	return &Problem{Line: line, Rule: strings.TrimPrefix(text, m[0])}
}

// parseJSON makes the nodes of a text that is known to be JSON.
func parseJSON(text []byte) (*yaml.Node, *Problem) {
	r := &jsonReader{text: text, decoder: json.NewDecoder(bytes.NewReader(text)), line: 1}
	r.decoder.UseNumber()
	root, err := r.node(0)
	if err != nil {
		return nil, &Problem{Line: r.line, Rule: err.Error()}
	}
	return root, nil
}

// A jsonReader counts lines while it reads.
type jsonReader struct {
	text    []byte
	decoder *json.Decoder
	// line is that of offset.
	line   int
	offset int64
	nodes  int
}

func (r *jsonReader) node(depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	if r.nodes++; r.nodes > maxNodes {
		return nil, errMany
	}
	start := r.offset
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	end := r.decoder.InputOffset()
	raw := r.text[start:end]
	r.line += bytes.Count(raw, []byte("\n"))
	r.offset = end
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line}
	switch token := token.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		if token == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		return n, r.members(n, depth)
	case string:
		n.Tag, n.Value = "!!str", token
		// The decoder puts a replacement where half of a pair of escapes is missing.
		if strings.ContainsRune(token, utf8.RuneError) && !bytes.ContainsRune(raw, utf8.RuneError) &&
			!bytes.Contains(bytes.ToLower(raw), []byte(`\ufffd`)) {
			return nil, errors.New("has an escape that is not a character")
		}
	case json.Number:
		n.Tag, n.Value = "!!int", token.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(token)
	case nil:
		n.Tag, n.Value = "!!null", "null"
	default:
		return nil, fmt.Errorf("has a token of type %T", token)
	}
	return n, nil
}

// members reads the content of an object or array, and its end.
func (r *jsonReader) members(n *yaml.Node, depth int) error {
	for r.decoder.More() {
		member, err := r.node(depth + 1)
		if err != nil {
			return err
		}
		n.Content = append(n.Content, member)
	}
	_, err := r.decoder.Token()
	r.line += bytes.Count(r.text[r.offset:r.decoder.InputOffset()], []byte("\n"))
	r.offset = r.decoder.InputOffset()
	return err
}

// JSON decodes a JSON document as [json.Unmarshal] does, and refuses unknown fields.
func JSON(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
