package evaluate

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// A Violation is one rule that a script breaks.
type Violation struct {
	// Line is the line of the script, from 1; 0 for the script as a whole.
	Line int `json:"line"`
	// Rule says what is wrong, in a few words.
	Rule string `json:"rule"`
}

func (v Violation) String() string {
	if v.Line == 0 {
		return v.Rule
	}
	return fmt.Sprintf("line %d: %s", v.Line, v.Rule)
}

// A ScriptError is a script that was refused before it was written or run.
type ScriptError struct {
	// Violations has at least one entry, and at most [maxViolations].
	Violations []Violation
}

// maxViolations bounds what is said about one script.
const maxViolations = 100

func (e *ScriptError) Error() string {
	texts := make([]string, len(e.Violations))
	for i, v := range e.Violations {
		texts[i] = v.String()
	}
	return "script refused: " + strings.Join(texts, "; ")
}

// Hint says what to write instead.
func (e *ScriptError) Hint() string {
	return "let the script run to its end, or raise an exception: a call that ends the process hides why"
}

// ValidateScript checks a script before it is written (EX-006, EX-044). Nil means
// that it may run. The rules:
//
//   - it is not empty, white space apart;
//   - it is UTF-8 (EX-043);
//   - nowhere in its text, comments and strings included, stands a call of exit,
//     sys.exit, os._exit or quit: the name as a whole word, then white space or
//     none, then "(". What "white space" and "word" mean is Python's rule.
//
// It is a check of text, made to keep honest scripts from hiding their errors, and
// no protection: raise SystemExit passes, and so does an alias.
func ValidateScript(content string) []Violation {
	if !utf8.ValidString(content) {
		return []Violation{{Line: 1 + strings.Count(content[:firstInvalid(content)], "\n"), Rule: "is not UTF-8"}}
	}
	if !exitRules().solid.MatchString(content) {
		return []Violation{{Rule: "is empty"}}
	}
	var found []Violation
	line, counted := 1, 0
	for _, at := range exitRules().call.FindAllStringSubmatchIndex(content, maxViolations) {
		start, end := at[2], at[3] // of the name
		line += strings.Count(content[counted:start], "\n")
		counted = start
		found = append(found, Violation{Line: line, Rule: fmt.Sprintf("calls %s(", content[start:end])})
	}
	return found
}

// CheckScript is [ValidateScript] as an error, a [*ScriptError].
func CheckScript(content string) error {
	if found := ValidateScript(content); len(found) > 0 {
		return &ScriptError{Violations: found}
	}
	return nil
}

// pythonSpace is Python's \s as a class of characters: Go's \s is ASCII only, and
// its \pZ is what is left of Python's.
const pythonSpace = `\t-\r\x1c-\x20\x{85}\pZ`

type scriptRules struct{ solid, call *regexp.Regexp }

// exitRules are compiled when first needed: every start of a program that imports
// this package would pay for it otherwise.
var exitRules = sync.OnceValue(func() scriptRules {
	return scriptRules{
		solid: regexp.MustCompile(`[^` + pythonSpace + `]`),
		// Of "sys.exit (" the whole is named, though "exit (" alone is refused as
		// well. A word goes on with letters and digits of any script.
		call: regexp.MustCompile(`(?:^|[^\pL\pN_])((?:sys\.)?exit|os\._exit|quit)[` + pythonSpace + `]*\(`),
	}
})

// firstInvalid is where the first byte stands that is not UTF-8.
func firstInvalid(text string) int {
	for i, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return i
			}
		}
	}
	return len(text)
}
