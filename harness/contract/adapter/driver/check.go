package driver

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
)

// Bounds of names. They are far above what libraries have.
const (
	mostName       = 200 // bytes
	mostParameters = 64
)

// Check returns every wrong name of an adapter (AR-04): its language, package and import path,
// and its functions by operation, in this order. It is nil if programs can be written for all
// functions. Whether an image has them is not known before a call.
func Check(language, pkg, importPath string, functions map[string]string) []strict.Problem {
	fields := make([]field, 0, len(functions))
	for _, operation := range slices.Sorted(maps.Keys(functions)) {
		fields = append(fields, field{strict.Path("function_mapping", operation), functions[operation]})
	}
	return check(language, pkg, importPath, fields)
}

// field is a function and its key in messages.
type field struct{ name, value string }

func check(language, pkg, importPath string, functions []field) []strict.Problem {
	l, ok := languages()[language]
	if !ok {
		return []strict.Problem{{Path: "language", Value: strict.Quoted(language), Rule: "must be one of " + text.List(Languages())}}
	}
	var problems []strict.Problem
	report := func(field, value, rule string) {
		problems = append(problems, strict.Problem{Path: field, Value: strict.Quoted(value), Rule: rule})
	}
	isPackage := l.packages.accepts(pkg)
	if !isPackage {
		report("package", pkg, l.packages.rule)
	}
	switch {
	case importPath != "" && !l.imports.accepts(importPath):
		report("import_path", importPath, l.imports.rule)
	case importPath == "" && isPackage && !l.imports.accepts(l.imported(pkg)):
		problems = append(problems, strict.Problem{Path: "import_path", Rule: fmt.Sprintf("must be given: package %s cannot be imported by its name", strict.Quoted(pkg))})
	}
	for _, f := range functions {
		if _, rule := l.signature(f.value); rule != "" {
			report(f.name, f.value, rule)
		}
	}
	return problems
}

// language is what differs between languages.
type language struct {
	packages, imports, functions, parameters form
	// imported is the import path of a package.
	imported func(pkg string) string
	// needsNames says that a function must have its parameters in parentheses.
	needsNames bool
	// checkValues refuses values that the language cannot have.
	checkValues func(parameters map[string]any) error
	program     func(c Call, f function) (Program, error)
	// missing finds in stderr what an image lacks.
	missing []sign
	// command is the program that an image needs.
	command string
}

// form is the form of a name.
type form struct {
	pattern *regexp.Regexp
	// but are names that have the form and are refused.
	but  []string
	rule string
}

func (f form) accepts(name string) bool {
	return len(name) <= mostName && f.pattern.MatchString(name) && !slices.Contains(f.but, name)
}

// newForm compiles a pattern that a name must match as a whole.
func newForm(pattern, rule string, but ...string) form {
	return form{regexp.MustCompile(`\A(?:` + pattern + `)\z`), but, rule} // \z, because $ also matches before a line end
}

// Parts of patterns.
const (
	word    = `[A-Za-z_][A-Za-z0-9_]*`
	segment = `[A-Za-z0-9_][A-Za-z0-9._~-]*` // of a path; it is never ..
	paths   = segment + `(?:/` + segment + `)*`
)

var languages = sync.OnceValue(func() map[string]language {
	return map[string]language{Python: python(), Node: node(), Go: golang(), Rust: rust()}
})

func itself(pkg string) string { return pkg }

// function is a function of a mapping.
type function struct {
	name         string
	isPositional bool
	parameters   []parameter
}

// parameter is a positional parameter. Its form has %s for the argument; that of a plain name is "%s".
type parameter struct{ name, form string }

func (f function) names() []string {
	names := make([]string, len(f.parameters))
	for i, p := range f.parameters {
		names[i] = p.name
	}
	return names
}

// signature reads a function of a mapping. rule is the rule that it breaks, empty for none.
func (l language) signature(value string) (f function, rule string) {
	name, rest, isPositional := strings.Cut(value, "(")
	f = function{name: name, isPositional: isPositional}
	list, isClosed := strings.CutSuffix(rest, ")")
	switch {
	case !l.functions.accepts(name), isPositional && !isClosed:
		return f, l.functions.rule
	case !isPositional && l.needsNames:
		return f, "must have the names of its parameters: name(a, b), or name() without any"
	case strings.TrimSpace(list) == "":
		return f, ""
	}
	parts := strings.Split(list, ",")
	if len(parts) > mostParameters {
		return f, fmt.Sprintf("has %d parameters; at most %d", len(parts), mostParameters)
	}
	for _, part := range parts {
		part = strings.Trim(part, " ")
		if !l.parameters.accepts(part) {
			return f, fmt.Sprintf("has the parameter %s, which %s", strict.Quoted(part), l.parameters.rule)
		}
		p := newParameter(part)
		if slices.Contains(f.names(), p.name) {
			return f, fmt.Sprintf("has the parameter %s twice", p.name)
		}
		f.parameters = append(f.parameters, p)
	}
	return f, ""
}

// newParameter reads a parameter of the accepted form.
func newParameter(part string) parameter {
	name := strings.TrimSuffix(strings.TrimPrefix(part, "&"), ".into()")
	return parameter{name, strings.Replace(part, name, "%s", 1)}
}
