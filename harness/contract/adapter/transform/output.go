package transform

import (
	"fmt"

	"github.com/evalbox/evalbox/internal/strict"
)

// Output is a compiled chain of output transforms. It is safe for concurrent use. The zero
// value has no steps.
type Output struct {
	chain chain[any]
}

// CompileOutput compiles the output transforms of an adapter (AR-06). The problems are all
// problems of the list; if there are any, the chain is nil.
//
//   - parse: the form of a text, one of the words json, json_lines, csv and lines; or the
//     mapping {regex: PATTERN}.
//   - extract: a JSONPath (RFC 9535). A query for one value gives that value, which must be
//     there. Every other query gives the list of the values that it finds.
//   - format: a template of Go's text/template for the value. It has the functions of the
//     language, and json, which is the JSON text of a value. The result is text.
func CompileOutput(steps []Step) (*Output, []strict.Problem) {
	c, problems := compile("output", steps, map[string]compiler[any]{
		Parse:   compileParse,
		Extract: compileExtract,
		Format:  compileFormat,
	}, []string{Rename, Map, Default, Validate})
	if c == nil {
		return nil, problems
	}
	return &Output{chain: *c}, nil
}

// Apply returns the value after all steps. It does not change its argument, and the result
// shares nothing with it. The value must be plain data, as package strict or encoding/json
// decodes it. Whole numbers of the result are int64 if they fit, other numbers are float64; a
// number that fits neither is a json.Number with all its digits. The error is a [*StepError],
// except for a value that is not plain data.
func (out *Output) Apply(value any) (any, error) {
	own, err := plain(value)
	if err != nil {
		return nil, fmt.Errorf("input of the transforms: %w", err)
	}
	return out.chain.apply(own)
}
