package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/internal/text"
)

// methods are those of operations. A body is sent with the last three.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodPost, http.MethodPut, http.MethodPatch}

func hasBody(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

// An endpoint is a method and the template of a path.
type endpoint struct {
	method string
	parts  []part
}

// A part is a literal text in its escaped form, or a parameter.
type part struct{ literal, parameter string }

var (
	parameterPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\A[A-Za-z_][A-Za-z0-9_.-]*\z`) })
	literalPattern   = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\A(?:[A-Za-z0-9/._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*\z`) // pchar of RFC 3986
	})
)

const maxEndpoint = 2000

// parseEndpoint reads "METHOD /path/{parameter}". The error is the rule that it breaks.
func parseEndpoint(source string) (endpoint, error) {
	method, path, found := strings.Cut(source, " ")
	switch {
	case len(source) > maxEndpoint:
		return endpoint{}, fmt.Errorf("must have at most %d bytes", maxEndpoint)
	case !found || !strings.HasPrefix(path, "/"):
		return endpoint{}, errors.New("must be a method and a path, such as GET /items/{id}")
	case !slices.Contains(methods, method):
		return endpoint{}, errors.New("must have one of the methods " + text.List(methods))
	case strings.ContainsAny(path, "?#"):
		return endpoint{}, errors.New("must have a path only: parameters that the path does not name become the query")
	}
	e := endpoint{method: method}
	for rest := path; rest != ""; {
		literal, after, open := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return endpoint{}, errors.New("has a } without a {")
		}
		if !literalPattern().MatchString(literal) {
			return endpoint{}, errors.New("has a character that must be escaped in a path, such as %20 for a space")
		}
		if literal != "" {
			e.parts = append(e.parts, part{literal: literal})
		}
		if !open {
			break
		}
		name, behind, closed := strings.Cut(after, "}")
		switch {
		case !closed || strings.Contains(name, "{"):
			return endpoint{}, errors.New("has a { without a }")
		case !parameterPattern().MatchString(name):
			return endpoint{}, fmt.Errorf("has the parameter %.100q: a name has letters, digits, _, . and -, and begins with a letter or _", name)
		}
		e.parts = append(e.parts, part{parameter: name})
		rest = behind
	}
	// A parameter is never a segment that leads elsewhere, so any stands for all.
	if leadsElsewhere(e.fill(func(string) string { return "x" })) {
		return endpoint{}, errors.New("must not have a segment . or .. in its path")
	}
	return e, nil
}

// fill returns the escaped path with values for the parameters, which are escaped.
func (e endpoint) fill(escaped func(parameter string) string) string {
	var path strings.Builder
	for _, p := range e.parts {
		if p.parameter != "" {
			path.WriteString(escaped(p.parameter))
		} else {
			path.WriteString(p.literal)
		}
	}
	return path.String()
}

// parameters are the names in the path, each once.
func (e endpoint) parameters() (names []string) {
	for _, p := range e.parts {
		if p.parameter != "" && !slices.Contains(names, p.parameter) {
			names = append(names, p.parameter)
		}
	}
	return names
}

// leadsElsewhere reports whether a path has a segment . or .., in whatever form a server may
// take for one.
func leadsElsewhere(path string) bool {
	plain, err := url.PathUnescape(path)
	if err != nil {
		plain = path
	}
	return slices.ContainsFunc(strings.FieldsFunc(plain, func(r rune) bool { return r == '/' || r == '\\' }),
		func(segment string) bool { return segment == "." || segment == ".." })
}
