// Package driver writes the program that calls one function of a library, and reads its answer
// (AR-04). The program runs in a container without a network. Nothing here runs it.
//
// Names become a part of the program, so that Check and New take only names that can be nothing
// else than an import and a call. Values are data: JSON on stdin, and literals in Rust.
package driver

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Dir is where the files of a [Program] are in its container.
const Dir = "/host/evalbox/driver"

// scratch is where the tools of a language write. The rest of the container may be read-only.
const scratch = "/tmp/evalbox"

// Names of languages, as adapters have them.
const (
	Python = "python"
	Node   = "node"
	Go     = "go"
	Rust   = "rust"
)

// Call is a call of a function.
type Call struct {
	Language string
	// Package is the name of the library: a distribution of Python, a package of npm, a package or
	// module of Go, a crate of Rust. Rust also takes std, core, alloc and a directory that begins
	// with ./ or /, Node.js a file.
	Package string
	// ImportPath is what the program imports. Empty stands for the package.
	ImportPath string
	// Function is a name such as dumps, Class.method or mod::name, and then in parentheses the names of
	// the positional parameters. Without parentheses Python has keyword parameters, and the
	// function of Node.js and Go has one parameter with all of them. In Rust, &a borrows an
	// argument, and a.into() converts it, into a String for example.
	Function string
	// Parameters are the values by name: nil, bool, int64, float64, json.Number, string, []any and
	// map[string]any.
	Parameters map[string]any
}

// Program is a program that makes a [Call].
type Program struct {
	// Command is run in the working directory of the container. No shell reads it.
	Command []string
	// Stdin is the request in JSON. It is empty if the program has it in its text.
	Stdin string
	// Files are the texts of files by their paths relative to Dir. They need not be writable.
	Files map[string]string
	// Env are the variables that the tools of the language need beside PATH. With them these
	// tools write nowhere but below /tmp, and reach no network.
	Env map[string]string
}

// At is the program for another place of its files than [Dir].
func (p Program) At(dir string) Program {
	p.Command = slices.Clone(p.Command)
	for i, word := range p.Command {
		if below, ok := strings.CutPrefix(word, Dir+"/"); ok {
			p.Command[i] = strings.TrimSuffix(dir, "/") + "/" + below
		}
	}
	return p
}

// Languages are the languages of libraries, sorted.
func Languages() []string { return slices.Sorted(maps.Keys(languages())) }

// New returns the program of a call. The error joins every name that [Check] refuses; a
// parameter that a positional name lacks or that no name has; and a value that cannot be given to the
// language without a change.
func New(c Call) (Program, error) {
	if problems := check(c.Language, c.Package, c.ImportPath, []field{{"function", c.Function}}); len(problems) > 0 {
		errs := make([]error, len(problems))
		for i, p := range problems {
			errs[i] = errors.New(p.String())
		}
		return Program{}, errors.Join(errs...)
	}
	l := languages()[c.Language]
	f, _ := l.signature(c.Function) // it is checked
	if err := errors.Join(fit(f, c.Parameters), l.checkValues(c.Parameters)); err != nil {
		return Program{}, err
	}
	c.ImportPath = cmp.Or(c.ImportPath, l.imported(c.Package))
	p, err := l.program(c, f)
	if err != nil {
		return Program{}, fmt.Errorf("writing the request of %s: %w", c.Function, err)
	}
	return p, nil
}

// fit compares the parameters with the names of a function that has positional ones.
func fit(f function, parameters map[string]any) error {
	if !f.isPositional {
		return nil
	}
	var errs []error
	for _, p := range f.parameters {
		if _, ok := parameters[p.name]; !ok {
			errs = append(errs, fmt.Errorf("parameter %q of %s is missing", p.name, f.name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if !slices.Contains(f.names(), name) {
			errs = append(errs, fmt.Errorf("parameter %.100q is not one of %s(%s)", name, f.name, strings.Join(f.names(), ", ")))
		}
	}
	return errors.Join(errs...)
}
