package evaluate

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// MaskingKind is a way of hiding errors.
type MaskingKind string

// The two ways that are looked for.
const (
	// MaskingBare is "except:", which also catches KeyboardInterrupt.
	MaskingBare MaskingKind = "bare"
	// MaskingBroadPass is "except Exception:" or "except BaseException:" with
	// nothing but pass in it.
	MaskingBroadPass MaskingKind = "broad_pass"
)

// Masking is a place in a script that hides errors.
type Masking struct {
	Line int         `json:"line"`
	Kind MaskingKind `json:"kind"`
	// Exception is Exception or BaseException; empty for a bare clause.
	Exception string `json:"exception"`
}

// String is the message of EX-045.
func (m Masking) String() string {
	if m.Kind == MaskingBare {
		return fmt.Sprintf("Line %d: bare 'except:' clause masks all errors", m.Line)
	}
	return fmt.Sprintf("Line %d: 'except %s:' with only 'pass' masks errors", m.Line, m.Exception)
}

// DetectErrorMasking looks for clauses that hide errors (EX-045): a bare "except:",
// and "except Exception:" or "except BaseException:", also in parentheses or with
// "as e", whose body is only pass. Comments and strings are no code. The answer is
// advice: nothing is refused for it. Any text is accepted, Python or not; time is
// linear.
func DetectErrorMasking(content string) []Masking {
	lines := logicalLines(content)
	var found []Masking
	for i, line := range lines {
		clause := exceptClause().FindStringSubmatch(line.text)
		if clause == nil {
			continue
		}
		caught, body := strings.Trim(clause[1], "( \t)"), clause[2]
		switch {
		case caught == "" && clause[1] == "":
			found = append(found, Masking{Line: line.number, Kind: MaskingBare})
		case caught != "" && onlyPass(body, line.indent, lines[i+1:]):
			found = append(found, Masking{Line: line.number, Kind: MaskingBroadPass, Exception: caught})
		}
	}
	return found
}

// exceptClause matches a bare or a broad clause; the groups are what is caught and
// what stands after the colon.
var exceptClause = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^except\b[ \t]*\*?[ \t]*(|\(?[ \t]*\b(?:Base)?Exception[ \t]*\)?)(?:[ \t]*\bas[ \t]+\w+)?[ \t]*:(.*)$`)
})

// onlyPass reports whether the body of a clause holds nothing but pass: what stands
// on the same line, or else the deeper lines after it.
func onlyPass(same string, indent int, after []logicalLine) bool {
	if strings.TrimSpace(same) != "" {
		return passes(same)
	}
	body := 0
	for _, line := range after {
		if line.indent <= indent {
			break
		}
		if !passes(line.text) {
			return false
		}
		body++
	}
	return body > 0
}

// passes reports whether a line holds statements, and all of them are pass.
func passes(text string) bool {
	seen := false
	for statement := range strings.SplitSeq(text, ";") {
		switch strings.TrimSpace(statement) {
		case "pass":
			seen = true
		case "":
		default:
			return false
		}
	}
	return seen
}
