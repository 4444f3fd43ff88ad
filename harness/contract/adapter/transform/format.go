package transform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"

	"github.com/evalbox/evalbox/internal/text"
)

const (
	// maxTemplate bounds the text of a template, in bytes.
	maxTemplate = 16 << 10
	// maxOutput bounds the result of a template, and the arguments and the result of each of
	// its functions that make text, in bytes.
	maxOutput = 1 << 20
	// maxCalls bounds how deep templates call templates.
	maxCalls = 100
	// maxWork bounds the work of a template. A unit is the execution of 64 bytes of a template,
	// or 64 bytes of text in a function. A round of a loop has 3 more, a call of a template 10:
	// 100,000 rounds are possible if the body has up to 400 bytes.
	maxWork = 1_000_000
)

// The names of the hidden functions. A template cannot call them: they are not known when its
// text is read.
const (
	workName  = "_work"
	enterName = "_enter"
	leaveName = "_leave"
)

// compileFormat compiles a template.
//
// A template can loop over a number and call itself. Package text/template bounds neither. So
// each body that can run more than once gets hidden calls that count.
func compileFormat(spec any, report report) func(any) (any, error) {
	source, ok := spec.(string)
	switch {
	case !ok:
		report("", shown(spec), "must be text with a template, is "+kindOf(spec))
		return nil
	case source == "":
		report("", `""`, "must be a template, is empty")
		return nil
	case len(source) > maxTemplate:
		report("", "", fmt.Sprintf("has %s; at most %s", text.Size(int64(len(source))), text.Size(maxTemplate)))
		return nil
	}
	t, err := template.New("format").Option("missingkey=error").Funcs(new(execution).functions()).Parse(source)
	if err == nil {
		err = instrument(t)
	}
	if err != nil {
		report("", "", "must be a template: "+reason(err))
		return nil
	}
	return func(value any) (any, error) { return format(t, value) }
}

// instrument adds the hidden calls to a template, and says whether all templates that it calls
// are there.
func instrument(t *template.Template) error {
	for _, each := range t.Templates() {
		if each.Tree == nil || each.Root == nil {
			continue
		}
		if err := count(t, each.Root); err != nil {
			return err
		}
		enter, work := call(enterName), call(fmt.Sprintf("%s %d", workName, 7+weight(each.Root)))
		each.Root.Nodes = slices.Concat([]parse.Node{enter, work}, each.Root.Nodes, []parse.Node{call(leaveName)})
	}
	return nil
}

// count adds a hidden call to the bodies of all loops in a list.
func count(t *template.Template, list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, node := range list.Nodes {
		var branch *parse.BranchNode
		switch node := node.(type) {
		case *parse.TemplateNode:
			if t.Lookup(node.Name) == nil {
				return fmt.Errorf("there is no template %q", node.Name)
			}
		case *parse.IfNode:
			branch = &node.BranchNode
		case *parse.WithNode:
			branch = &node.BranchNode
		case *parse.RangeNode:
			units := weight(node.List)
			if err := errors.Join(count(t, node.List), count(t, node.ElseList)); err != nil {
				return err
			}
			node.List.Nodes = append([]parse.Node{call(fmt.Sprintf("%s %d", workName, units))}, node.List.Nodes...)
			continue
		}
		if branch == nil {
			continue
		}
		if err := errors.Join(count(t, branch.List), count(t, branch.ElseList)); err != nil {
			return err
		}
	}
	return nil
}

// weight is the work of one execution of a list, in units.
func weight(list *parse.ListNode) int { return 3 + len(list.String())/64 }

// call is an action that calls a hidden function. It writes nothing.
func call(pipeline string) parse.Node {
	trees, err := parse.Parse("", "{{"+pipeline+"}}", "", "", new(execution).hidden())
	if err != nil {
		panic("transform: " + err.Error()) // the texts are constants of this file
	}
	return trees[""].Root.Nodes[0]
}

// format executes a template. What it wrote before a failure is lost.
func format(t *template.Template, value any) (any, error) {
	own, err := t.Clone() // the functions of each execution count for themselves
	if err != nil {
		return nil, err
	}
	e := new(execution)
	if err := own.Funcs(e.functions()).Funcs(e.hidden()).Execute(e, value); err != nil {
		if limit := limitError(""); errors.As(err, &limit) {
			return nil, limit // without the place, which can be a hidden call
		}
		return nil, errors.New(reason(err))
	}
	return e.out.String(), nil
}

// An execution is one use of a template.
type execution struct {
	out   bytes.Buffer
	work  int
	calls int
}

// Write takes the output of the template, up to its bound.
func (e *execution) Write(p []byte) (int, error) {
	if e.out.Len()+len(p) > maxOutput {
		return 0, errOutput
	}
	return e.out.Write(p)
}

// A limitError says which bound an execution exceeds.
type limitError string

func (e limitError) Error() string { return string(e) }

var errOutput = limitError("the result has more than " + text.Size(maxOutput))

// hidden are the functions that count.
func (e *execution) hidden() template.FuncMap {
	return template.FuncMap{workName: e.spend, enterName: e.enter, leaveName: e.leave}
}

// functions are json, and bounded forms of the functions of the language
// that make text. Without bounds, a text that is joined with itself 40 times would fill the
// memory. The other functions of the language make no new values.
func (e *execution) functions() template.FuncMap {
	return template.FuncMap{
		"json":    func(value any) (string, error) { return e.bounded(jsonText, value) },
		"print":   func(values ...any) (string, error) { return e.bounded(joined(fmt.Sprint), values...) },
		"println": func(values ...any) (string, error) { return e.bounded(joined(fmt.Sprintln), values...) },
		"html":    func(values ...any) (string, error) { return e.bounded(joined(template.HTMLEscaper), values...) },
		"js":      func(values ...any) (string, error) { return e.bounded(joined(template.JSEscaper), values...) },
		"urlquery": func(values ...any) (string, error) {
			return e.bounded(joined(template.URLQueryEscaper), values...)
		},
		"printf": func(layout string, values ...any) (string, error) {
			if len(layout) > maxLayout || wide().MatchString(layout) {
				return "", fmt.Errorf("the first argument of printf must have at most %d bytes, "+
					"no *, no [ and no number above 999", maxLayout)
			}
			return e.bounded(joined(func(values ...any) string { return fmt.Sprintf(layout, values...) }), values...)
		},
	}
}

// maxLayout bounds the first argument of printf, in bytes.
const maxLayout = 1000

// wide matches what lets a short layout make a long text: wide columns, and arguments that are
// used again.
var wide = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[*\[]|[0-9]{4}`) })

func joined(print func(values ...any) string) func(values ...any) (string, error) {
	return func(values ...any) (string, error) { return print(values...), nil }
}

// jsonText is the JSON text of a value, without the escapes for HTML.
func jsonText(values ...any) (string, error) {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(values[0])
	return strings.TrimSuffix(out.String(), "\n"), err
}

// bounded calls a function that makes text of values.
func (e *execution) bounded(print func(values ...any) (string, error), values ...any) (string, error) {
	size := 0
	for _, value := range values {
		if size = sizeOf(size, value); size > maxOutput {
			return "", limitError("the values of a function have more than " + text.Size(maxOutput))
		}
	}
	if _, err := e.spend(1 + size/64); err != nil {
		return "", err
	}
	out, err := print(values...)
	if err == nil && len(out) > maxOutput {
		return "", errOutput
	}
	return out, err
}

// sizeOf adds about the size of a value as text, in bytes. It stops above maxOutput.
func sizeOf(size int, value any) int {
	switch value := value.(type) {
	case string:
		return size + len(value)
	case json.Number:
		return size + len(value)
	case []any:
		for _, element := range value {
			if size = sizeOf(size, element); size > maxOutput {
				break
			}
		}
	case map[string]any:
		for key, element := range value {
			if size = sizeOf(size+len(key), element); size > maxOutput {
				break
			}
		}
	}
	return size + 8
}

// spend counts work.
func (e *execution) spend(units int) (string, error) {
	if e.work += max(units, 1); e.work > maxWork {
		return "", limitError("the template runs too long")
	}
	return "", nil
}

// enter counts templates that call templates.
func (e *execution) enter() (string, error) {
	if e.calls++; e.calls > maxCalls {
		return "", limitError(fmt.Sprintf("templates call each other more than %d deep", maxCalls))
	}
	return "", nil
}

func (e *execution) leave() string {
	e.calls--
	return ""
}
