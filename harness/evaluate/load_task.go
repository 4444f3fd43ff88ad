package evaluate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/evalbox/evalbox/policy"
)

// maxTaskFile bounds a task file; a description is prose.
const maxTaskFile = 1 << 20

// A TaskError is one thing that is wrong with a task file.
type TaskError struct {
	// Source is the file, Line the line in it or 0, Rule what is wrong.
	Source string
	Line   int
	Rule   string
	// Err is the cause, if there is one.
	Err error
}

func (e *TaskError) Error() string {
	at := e.Source
	if e.Line > 0 {
		at = fmt.Sprintf("%s:%d", e.Source, e.Line)
	}
	return fmt.Sprintf("task %s: %s", at, e.Rule)
}

func (e *TaskError) Unwrap() error { return e.Err }

// Hint says what a task file holds.
func (e *TaskError) Hint() string {
	return "a task file has the keys " + strings.Join(taskKeys(), ", ")
}

// LoadTask reads a task from a YAML file with the field names of DM-007. A relative
// data_dir is relative to the file. Everything that is wrong is reported, joined:
// keys that are not known, with their lines; values that break a rule; required
// keys that are missing; and a data folder that is missing or empty (AI-11).
func LoadTask(path string) (TaskDescription, error) {
	file, err := os.Open(path)
	if err != nil {
		return TaskDescription{}, &TaskError{Source: path, Rule: cause(err).Error(), Err: err}
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxTaskFile+1))
	switch {
	case err != nil:
		return TaskDescription{}, &TaskError{Source: path, Rule: cause(err).Error(), Err: err}
	case len(text) > maxTaskFile:
		return TaskDescription{}, &TaskError{Source: path, Rule: fmt.Sprintf("has more than %v", policy.Size(maxTaskFile))}
	}
	task, err := parseTask(text, path)
	if err != nil {
		return TaskDescription{}, err
	}
	if !filepath.IsAbs(task.DataDir) {
		abs, err := filepath.Abs(path)
		if err != nil {
			return TaskDescription{}, &TaskError{Source: path, Rule: cause(err).Error(), Err: err}
		}
		task.DataDir = filepath.Join(filepath.Dir(abs), task.DataDir)
	}
	return task, task.CheckData()
}

// parseTask reads the text of a task file.
func parseTask(text []byte, source string) (TaskDescription, error) {
	task := TaskDescription{DataDir: "./" + inputName, OutputDir: "./" + finalName}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return task, &TaskError{Source: source, Rule: strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return task, &TaskError{Source: source, Rule: "must be one YAML document"}
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return task, &TaskError{Source: source, Rule: "must be a mapping of keys to values"}
	}
	errs := setKeys(&task, document.Content[0], source)
	if len(errs) == 0 {
		for _, problem := range task.problems() {
			errs = append(errs, &TaskError{Source: source, Rule: problem.Error(), Err: problem})
		}
	}
	return task, errors.Join(errs...)
}

// setKeys sets the fields of a task from a mapping and names the line of every key
// that cannot be used.
func setKeys(task *TaskDescription, mapping *yaml.Node, source string) []error {
	var errs []error
	fields := taskFields(task)
	lines := map[string]int{}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		target, known := fields[key.Value]
		switch first, twice := lines[key.Value]; {
		case !known:
			errs = append(errs, &TaskError{Source: source, Line: key.Line, Rule: "unknown key " + shown(key.Value)})
		case twice:
			errs = append(errs, &TaskError{Source: source, Line: key.Line,
				Rule: fmt.Sprintf("%s is given twice, first in line %d", key.Value, first)})
		default:
			if err := node.Decode(target); err != nil {
				errs = append(errs, &TaskError{Source: source, Line: key.Line, Rule: key.Value + ": " + yamlRule(err), Err: err})
			}
		}
		lines[key.Value] = key.Line
	}
	return errs
}

// yamlRule is the message of the YAML library without its lines, which are named
// already.
func yamlRule(err error) string {
	var types *yaml.TypeError
	if errors.As(err, &types) && len(types.Errors) > 0 {
		_, text, ok := strings.Cut(types.Errors[0], ": ")
		if ok {
			return text
		}
	}
	var field *policy.FieldError
	if errors.As(err, &field) {
		return strings.TrimSpace(field.Value + " " + field.Rule)
	}
	return err.Error()
}

// taskFields are pointers to the fields of a task by their names in a file.
func taskFields(task *TaskDescription) map[string]any {
	fields := map[string]any{}
	value := reflect.ValueOf(task).Elem()
	for i := range value.NumField() {
		fields[value.Type().Field(i).Tag.Get("yaml")] = value.Field(i).Addr().Interface()
	}
	return fields
}

func taskKeys() []string {
	var names []string
	for name := range taskFields(new(TaskDescription)) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
