package strict

import (
	"errors"
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/evalbox/evalbox/internal/text"
)

// MaxProblems bounds the reported problems of one document.
const MaxProblems = 100

// A Problem is one thing that is wrong with a document.
type Problem struct {
	// Line is the line in the document, 0 if it has none.
	Line int
	// Path is where it is, such as inputs.arguments[2]; empty for the whole document.
	Path string
	// Value is the value there, shortened; empty if it does not help.
	Value string
	// Rule is the expected form.
	Rule string
	// Err is the cause, if a type refused its value.
	Err error

	// named says that the rule names the place itself.
	named bool
}

// Within reports whether the path of a field is another one, or of a part of it.
func Within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && of != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// String is the problem without its line.
func (p Problem) String() string {
	switch {
	case p.Path == "", p.named:
		return p.Rule
	case p.Value == "":
		return p.Path + ": " + p.Rule
	}
	return p.Path + ": " + p.Value + " " + p.Rule
}

// At is the problem with its line, and the document's name.
func (p Problem) At(source string) string {
	if p.Line == 0 {
		return source + ": " + p.String()
	}
	return fmt.Sprintf("%s:%d: %s", source, p.Line, p)
}

// Quoted shows the beginning of a text that may hold anything.
func Quoted(value string) string { return text.Quote(value, 100) }

// shown is the value of a node.
func shown(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode, n.Kind == yaml.SequenceNode:
		return "" // the rule names its kind
	case n.Kind == yaml.ScalarNode && isText(n):
		return Quoted(n.Value)
	}
	return strings.Trim(Quoted(n.Value), `"`)
}

// kindOf names the kind of a node, for people.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isText(n):
		return "text"
	case n.ShortTag() == "!!null":
		return "nothing"
	case n.ShortTag() == "!!bool":
		return "true or false"
	}
	return "a number"
}

// isText says whether a scalar is text. Dates are: nothing here has a type of its own
// for them.
func isText(n *yaml.Node) bool {
	tag := n.ShortTag()
	return tag == "!!str" || tag == "!!timestamp" || tag == "!!merge"
}

// Join is the error of all problems, each as [Problem.At] has it; nil for none.
func Join(source string, problems []Problem) error {
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = errors.New(p.At(source))
	}
	return errors.Join(errs...)
}
