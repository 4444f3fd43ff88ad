package evaluate

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/strict"

	"github.com/evalbox/evalbox/internal/fsx"

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

// Hint says what a task file holds, unless the rule has named all keys already.
func (e *TaskError) Hint() string {
	if strings.HasPrefix(e.Rule, "unknown key ") {
		return "correct the key, or remove it"
	}
	return "a task file has the keys " + strings.Join(taskKeys(), ", ")
}

// LoadTask reads a task from a YAML file with the field names of DM-007. A relative
// data_dir is relative to the file. Everything that is wrong is reported, joined:
// keys that are not known, with their lines; values that break a rule; required
// keys that are missing; and a data folder that is missing or empty (AI-11).
func LoadTask(path string) (TaskDescription, error) {
	file, err := fsx.Open(path)
	if err != nil {
		return TaskDescription{}, &TaskError{Source: path, Rule: fsx.Cause(err).Error(), Err: err}
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxTaskFile+1))
	switch {
	case err != nil:
		return TaskDescription{}, &TaskError{Source: path, Rule: fsx.Cause(err).Error(), Err: err}
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
			return TaskDescription{}, &TaskError{Source: path, Rule: fsx.Cause(err).Error(), Err: err}
		}
		task.DataDir = filepath.Join(filepath.Dir(abs), task.DataDir)
	}
	return task, task.CheckData()
}

// parseTask reads the text of a task file.
func parseTask(text []byte, source string) (TaskDescription, error) {
	task := TaskDescription{DataDir: "./" + inputName, OutputDir: "./" + finalName}
	var errs []error
	for _, problem := range strict.Decode(text, &task, strict.Options{Lenient: true}) {
		errs = append(errs, taskError(problem, source))
	}
	if len(errs) == 0 {
		for _, problem := range task.problems() {
			errs = append(errs, &TaskError{Source: source, Rule: problem.Error(), Err: problem})
		}
	}
	return task, errors.Join(errs...)
}

func taskError(p strict.Problem, source string) error {
	if field, ok := errors.AsType[*policy.FieldError](p.Err); ok {
		p.Value, p.Rule = field.Value, field.Rule
	}
	return &TaskError{Source: source, Line: p.Line, Rule: p.String(), Err: p.Err}
}

// taskKeys are the keys that a task file may have, sorted.
func taskKeys() []string {
	var names []string
	for field := range reflect.TypeFor[TaskDescription]().Fields() {
		names = append(names, field.Tag.Get("yaml"))
	}
	slices.Sort(names)
	return names
}
