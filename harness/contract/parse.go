package contract

import (
	"fmt"
	"io"
	"os"

	"github.com/evalbox/evalbox/internal/strict"

	"github.com/evalbox/evalbox/policy"
)

// MaxDocument bounds a document: a stdin of the permitted size fits in it, unless most of
// it must be escaped.
const MaxDocument = 4 << 20

// Load reads a contract from a file, see [Parse]. An error that is no
// [RefusedError] means that the file cannot be read.
func Load(path string) (Contract, error) {
	text, err := ReadDocument(path)
	if err != nil {
		return Contract{}, err
	}
	return Parse(text, path)
}

// ReadDocument reads the text of a document from a file, up to one byte more than
// [MaxDocument], so that what reads the text can refuse it.
func ReadDocument(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, MaxDocument+1))
}

// Parse reads a contract, which is YAML or JSON. Source is its name in messages. An
// error of type [RefusedError] says everything that is wrong with the form of the
// document; the contract then holds what could be read.
func Parse(text []byte, source string) (Contract, error) {
	c, _, violations := parse(text)
	if len(violations) > 0 {
		return c, &RefusedError{source, violations}
	}
	return c, nil
}

// parse returns the lines of the fields as well.
func parse(text []byte) (Contract, map[string]int, []Violation) {
	var c Contract
	lines := map[string]int{}
	violations := decode(text, &c, strict.Options{
		Schema: SchemaV1, SchemaOptional: true, Lines: lines, Nullable: []string{"inputs.stdin", "determinism.seed"},
	})
	return c, lines, violations
}

// decode reads one of the documents of this package.
func decode(text []byte, into any, o strict.Options) []Violation {
	if len(text) > MaxDocument {
		return []Violation{{Code: "CX-01", Rule: fmt.Sprintf("has more than %v", policy.Size(MaxDocument))}}
	}
	o.Tag = "json"
	return formViolations(strict.Decode(text, into, o))
}
