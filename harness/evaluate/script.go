package evaluate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
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

func (v Violation) problem() trial.Problem {
	return trial.Problem{Code: "script", Field: "script", Line: v.Line, Rule: v.Rule}
}

// A ScriptError is a script that was refused before it was written or run.
type ScriptError struct {
	// Violations has at least one entry, and at most [maxViolations].
	Violations []Violation
}

const (
	// maxViolations bounds the messages about one script or list.
	maxViolations = 100
	refusedPrefix = "script refused: "
)

func (e *ScriptError) Error() string {
	texts := make([]string, len(e.Violations))
	for i, v := range e.Violations {
		texts[i] = v.String()
	}
	return refusedPrefix + strings.Join(texts, "; ")
}

// Hint says what to write instead.
func (e *ScriptError) Hint() string {
	return "let the script run to its end, or raise an exception: a call that ends the process hides why"
}

// ValidateScript checks a script before it is written (EX-006, EX-044). Nil means that it may
// run. The rules:
//
//   - it is not empty, white space apart;
//   - it is UTF-8 (EX-043);
//   - its text, comments and strings included, has no call of exit, sys.exit, os._exit or quit:
//     the name as a whole word, then optional white space, then "(". Python's rule says what
//     white space and a word are.
//
// This check of text keeps honest scripts from hiding their errors. It is not a protection:
// raise SystemExit passes, and so does an alias.
func ValidateScript(content string) []Violation {
	if !utf8.ValidString(content) {
		line := 1
		for i, r := range content {
			if _, size := utf8.DecodeRuneInString(content[i:]); r == utf8.RuneError && size == 1 {
				break
			}
			if r == '\n' {
				line++
			}
		}
		return []Violation{{Line: line, Rule: "is not UTF-8"}}
	}
	solid, call := scriptRules()
	if !solid.MatchString(content) {
		return []Violation{{Rule: "is empty"}}
	}
	var found []Violation
	line, counted := 1, 0
	for _, at := range call.FindAllStringSubmatchIndex(content, maxViolations) {
		start, end := at[2], at[3] // of the name
		line += strings.Count(content[counted:start], "\n")
		counted = start
		found = append(found, Violation{Line: line, Rule: fmt.Sprintf("calls %s(", content[start:end])})
	}
	return found
}

// checkScript is [ValidateScript] as an error; nil if the script may run.
func checkScript(content string) *ScriptError {
	if found := ValidateScript(content); len(found) > 0 {
		return &ScriptError{Violations: found}
	}
	return nil
}

// scriptRules are compiled when first needed: every start of a program that imports this
// package would take the time otherwise.
var scriptRules = sync.OnceValues(func() (solid, call *regexp.Regexp) {
	// Python's \s as a class of characters: Go's \s is ASCII only, and \pZ is the rest.
	const space = `\t-\r\x1c-\x20\x{85}\pZ`
	// Of "sys.exit (" the whole is named, though "exit (" alone is refused as well. A word goes
	// on with letters and digits of any language.
	return regexp.MustCompile(`[^` + space + `]`),
		regexp.MustCompile(`(?:^|[^\pL\pN_])((?:sys\.)?exit|os\._exit|quit)[` + space + `]*\(`)
})

// WriteScript writes a solution into workingDir as name, or as [ScriptName] when name is empty,
// and returns the absolute path (EX-005). The file contains exactly the content. An existing one
// is replaced at once and as a whole, and a link is not followed. A script that breaks a rule of
// [ValidateScript] is a [*ScriptError], and nothing is written.
func WriteScript(solution mlestar.SolutionScript, workingDir, name string) (string, error) {
	if refused := checkScript(solution.Content); refused != nil {
		return "", refused
	}
	if name == "" {
		name = ScriptName
	}
	if name != filepath.Base(name) || !filepath.IsLocal(name) || name == "." || strings.ContainsAny(name, `/\`) {
		return "", &policy.FieldError{Field: "filename", Value: shown(name), Rule: "must be the name of a file, without a directory"}
	}
	return writeScript(solution.Content, workingDir, name)
}

func writeScript(content, workingDir, name string) (string, error) {
	path, err := filepath.Abs(filepath.Join(workingDir, name))
	if err != nil {
		return "", unusable("working directory", workingDir, "cannot be used", err)
	}
	if info, lookErr := os.Lstat(path); lookErr == nil && info.IsDir() {
		err = errors.New("is a directory")
	} else {
		err = fsx.WriteFile(path, []byte(content), 0o644, false)
	}
	if err != nil {
		return "", unusable("script", path, "cannot be written", err)
	}
	return path, nil
}

// MaskingKind is a way of hiding errors.
type MaskingKind string

const (
	// MaskingBare is "except:", which also catches KeyboardInterrupt.
	MaskingBare MaskingKind = "bare"
	// MaskingBroadPass is "except Exception:" or "except BaseException:" with only pass in it.
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

// DetectErrorMasking looks for clauses that hide errors (EX-045): a bare "except:", and "except
// Exception:" or "except BaseException:", also in parentheses or with "as e", whose body is only
// pass. Comments and strings are not code. The answer is advice: nothing is refused for it. Any
// text is accepted, Python or not; time is linear.
func DetectErrorMasking(content string) []Masking {
	lines := logicalLines(content)
	_, clauses := maskingRules()
	var found []Masking
	for i, line := range lines {
		clause := clauses.FindStringSubmatch(line.text)
		if clause == nil {
			continue
		}
		caught, body := strings.Trim(clause[1], "( \t)"), clause[2]
		switch {
		case clause[1] == "":
			found = append(found, Masking{Line: line.number, Kind: MaskingBare})
		case caught != "" && onlyPass(body, line.indent, lines[i+1:]):
			found = append(found, Masking{Line: line.number, Kind: MaskingBroadPass, Exception: caught})
		}
	}
	return found
}

var maskingRules = sync.OnceValues(func() (pieces, clauses *regexp.Regexp) {
	// A piece is a string, a comment or a line end behind a backslash. A string with single
	// quotes ends with its line at the latest, as an error of the script.
	return regexp.MustCompile(`(?s)'''(?:\\.|[^\\])*?(?:'''|\z)|"""(?:\\.|[^\\])*?(?:"""|\z)|'(?:\\.|[^'\\\n])*'?|"(?:\\.|[^"\\\n])*"?|#[^\n]*|\\\n`),
		// The groups are the caught exception and the text after the colon.
		regexp.MustCompile(`^except\b[ \t]*\*?[ \t]*(|\(?[ \t]*\b(?:Base)?Exception[ \t]*\)?)(?:[ \t]*\bas[ \t]+\w+)?[ \t]*:(.*)$`)
})

// logicalLine is a line as Python's parser sees it: without comments, with "$" for strings, and
// joined where a bracket or a backslash continues it.
type logicalLine struct {
	// number is the physical line in which it begins, from 1.
	number int
	// indent is the width of the white space before it; a tab reaches to the next multiple of 8,
	// as in Python.
	indent int
	text   string
}

// joined stands for the end of a physical line within a logical one.
const joined = "\x00"

// logicalLines splits a script. It knows as much of Python as that needs, and gives some answer
// for every text.
func logicalLines(content string) []logicalLine {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n", joined, "$").Replace(strings.TrimPrefix(content, "\ufeff"))
	pieces, _ := maskingRules()
	code := []byte(pieces.ReplaceAllStringFunc(text, func(piece string) string {
		switch piece[0] {
		case '#':
			return ""
		case '\\':
			return joined
		}
		return "$" + strings.Repeat(joined, strings.Count(piece, "\n"))
	}))
	depth := 0 // of brackets
	for i, c := range code {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(depth-1, 0)
		case '\n':
			if depth > 0 {
				code[i] = joined[0]
			}
		}
	}
	var lines []logicalLine
	number := 1
	for line := range strings.SplitSeq(string(code), "\n") {
		text := strings.TrimLeft(line, joined+" \t\f")
		if text != "" {
			space, indent := line[:len(line)-len(text)], 0
			for _, c := range space {
				switch c {
				case ' ':
					indent++
				case '\t':
					indent += 8 - indent%8
				case '\f':
					indent = 0
				}
			}
			text = strings.TrimRight(strings.ReplaceAll(text, joined, " "), " \t\f")
			lines = append(lines, logicalLine{number + strings.Count(space, joined), indent, text})
		}
		number += 1 + strings.Count(line, joined)
	}
	return lines
}

// onlyPass reports whether the body of a clause is only pass: the text on the same line, or else
// the deeper lines after it.
func onlyPass(same string, indent int, after []logicalLine) bool {
	if strings.TrimSpace(same) != "" {
		return passes(same)
	}
	body := false
	for _, line := range after {
		if line.indent <= indent {
			break
		}
		if !passes(line.text) {
			return false
		}
		body = true
	}
	return body
}

// passes reports whether a line has statements, and all of them are pass.
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
