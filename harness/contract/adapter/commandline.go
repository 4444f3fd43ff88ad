package adapter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/policy"
)

// CommandLine is the interface of a command (AR-02).
type CommandLine struct {
	// Executable is the first word; BaseArgs are the words that follow it in every call.
	Executable string   `json:"executable"`
	BaseArgs   []string `json:"base_args,omitempty"`
	// ArgMapping has a template for each parameter, in the order of the command line. {value}, or
	// the name of the parameter in braces, is its value. A template without a value is an option
	// that a parameter switches on: true or false.
	ArgMapping strict.Pairs `json:"arg_mapping,omitempty"`
	// EnvMapping has the variable of a parameter.
	EnvMapping strict.Pairs `json:"env_mapping,omitempty"`
}

func (c *CommandLine) check(k *checker) {
	if strings.TrimSpace(c.Executable) == "" {
		k.refuse("interface.cli.executable", "", "must not be empty")
	}
	for _, pair := range c.ArgMapping {
		if _, err := parseTemplate(pair.Key, pair.Value); err != nil {
			k.refuse(strict.Path("interface.cli.arg_mapping", pair.Key), strict.Quoted(pair.Value), err.Error())
		}
	}
	for _, pair := range c.EnvMapping {
		field := strict.Path("interface.cli.env_mapping", pair.Key)
		if errs := policy.CheckEnvForm(map[string]string{pair.Value: ""}); len(errs) > 0 {
			k.refuse(field, strict.Quoted(pair.Value), policy.RuleOf(errs[0]))
		} else if rule := contract.StrippedEnv(pair.Value); rule != "" {
			k.refuse(field, strict.Quoted(pair.Value), rule)
		}
	}
}

// argTemplate is the template of one parameter: words, each of pieces between which the value
// stands.
type argTemplate [][]string

// parseTemplate splits a template into words, and these at the places of the value. So a value
// never becomes two words (resolution 20).
func parseTemplate(parameter, template string) (argTemplate, error) {
	words, err := shellquote.Split(template)
	if err != nil {
		return nil, errors.New("has a quote that does not end")
	}
	if len(words) == 0 {
		return nil, errors.New("must not be empty")
	}
	var parsed argTemplate
	for _, word := range words {
		pieces := []string{""}
		for rest := word; rest != ""; {
			before, after, open := strings.Cut(rest, "{")
			if strings.Contains(before, "}") {
				return nil, errors.New("has a } without a {")
			}
			pieces[len(pieces)-1] += before
			if !open {
				break
			}
			name, behind, closed := strings.Cut(after, "}")
			switch {
			case !closed:
				return nil, errors.New("has a { without a }")
			case name != "value" && name != parameter:
				return nil, fmt.Errorf("has the unknown name {%.100s}: the value is {value} or {%s}", name, parameter)
			}
			pieces, rest = append(pieces, ""), behind
		}
		parsed = append(parsed, pieces)
	}
	return parsed, nil
}

// hasValue reports whether the value stands in the template.
func (t argTemplate) hasValue() bool {
	return slices.ContainsFunc(t, func(pieces []string) bool { return len(pieces) > 1 })
}

// endOfOptions is the word after which a command takes no word for an option.
const endOfOptions = "--"

// endsOptions reports whether the template has the word "--" itself. As a value it ends nothing.
func (t argTemplate) endsOptions() bool {
	return slices.ContainsFunc(t, func(pieces []string) bool { return len(pieces) == 1 && pieces[0] == endOfOptions })
}

// words are the words of the command line for one value. ended says that no option follows.
func (t argTemplate) words(value string, ended bool) ([]string, error) {
	var words []string
	takesValue := false // the word before is an option of the document, which takes the next word
	for _, pieces := range t {
		word := strings.Join(pieces, value)
		if len(pieces) > 1 && pieces[0] == "" && strings.HasPrefix(word, "-") && !ended && !takesValue {
			return nil, errors.New(`must not begin with "-": the command would take it for an option`)
		}
		literal := len(pieces) == 1
		takesValue = literal && len(word) > 1 && word[0] == '-' && !strings.Contains(word, "=")
		ended = ended || literal && word == endOfOptions
		words = append(words, word)
	}
	return words, nil
}

// arguments are the words behind the executable, and the variables, for parameters. The error
// joins a [parameterError] for each one that is wrong.
func (c *CommandLine) arguments(parameters map[string]any) (words []string, env map[string]string, err error) {
	words, env = slices.Clone(c.BaseArgs), map[string]string{}
	ended := len(words) > 0 && words[len(words)-1] == endOfOptions
	var errs []error
	for _, pair := range c.ArgMapping {
		value, given := parameters[pair.Key]
		if !given || value == nil {
			continue
		}
		t, err := parseTemplate(pair.Key, pair.Value)
		var more []string
		if err == nil {
			more, err = t.mapped(value, ended)
		}
		if err != nil {
			errs = append(errs, &parameterError{pair.Key, err.Error()})
		}
		words, ended = append(words, more...), ended || len(more) > 0 && t.endsOptions()
	}
	for _, pair := range c.EnvMapping {
		value, given := parameters[pair.Key]
		if !given || value == nil {
			continue
		}
		text, err := scalar(value)
		if err != nil {
			errs = append(errs, &parameterError{pair.Key, err.Error()})
		}
		env[pair.Value] = text
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		_, isArg := c.ArgMapping.Get(name)
		_, isEnv := c.EnvMapping.Get(name)
		if !isArg && !isEnv {
			errs = append(errs, &parameterError{name, "unknown parameter; there are " + cmp.Or(strings.Join(c.parameters(), ", "), "none")})
		}
	}
	return words, env, errors.Join(errs...)
}

// parameters are the names of all parameters.
func (c *CommandLine) parameters() []string {
	var names []string
	for _, pair := range slices.Concat(c.ArgMapping, c.EnvMapping) {
		if !slices.Contains(names, pair.Key) {
			names = append(names, pair.Key)
		}
	}
	return names
}

// mapped are the words of one parameter. A list repeats its template.
func (t argTemplate) mapped(value any, ended bool) ([]string, error) {
	if !t.hasValue() {
		on, ok := value.(bool)
		if !ok {
			return nil, errors.New("must be true or false: it switches an option on")
		}
		if !on {
			return nil, nil
		}
		return t.words("", ended)
	}
	values, isList := value.([]any)
	if !isList {
		values = []any{value}
	}
	var words []string
	for _, each := range values {
		text, err := scalar(each)
		if err != nil {
			return nil, err
		}
		more, err := t.words(text, ended)
		if err != nil {
			return nil, err
		}
		words, ended = append(words, more...), ended || t.endsOptions()
	}
	return words, nil
}

// scalar is a value as one word.
func scalar(value any) (string, error) {
	switch value := value.(type) {
	case string:
		return value, nil
	case bool:
		return strconv.FormatBool(value), nil
	case int64:
		return strconv.FormatInt(value, 10), nil
	case float64:
		text, err := json.Marshal(value) // as JSON and URLs have it
		return string(text), err
	case json.Number:
		return value.String(), nil
	}
	return "", errors.New("must be a text, a number, true or false")
}

// A parameterError is a parameter that the adapter does not accept.
type parameterError struct{ name, rule string }

func (e *parameterError) Error() string { return "parameter " + strict.Quoted(e.name) + ": " + e.rule }
