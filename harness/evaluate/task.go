package evaluate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/policy"
)

// TaskType is the kind of problem (DM-004).
type TaskType string

// TaskTypes returns all kinds of problems.
func TaskTypes() []TaskType {
	return []TaskType{"classification", "regression", "image_classification", "image_to_image", "text_classification",
		"audio_classification", "sequence_to_sequence", "tabular"}
}

// UnmarshalText refuses a name that is not a task type.
func (t *TaskType) UnmarshalText(text []byte) error {
	return readName(t, "task_type", TaskTypes(), text)
}

// DataModality is the kind of data (DM-005).
type DataModality string

// DataModalities returns all kinds of data.
func DataModalities() []DataModality {
	return []DataModality{"tabular", "image", "text", "audio", "mixed"}
}

// UnmarshalText refuses a name that is not a modality.
func (m *DataModality) UnmarshalText(text []byte) error {
	return readName(m, "data_modality", DataModalities(), text)
}

// readName sets target from its wire name, which must be one of all.
func readName[T ~string](target *T, field string, all []T, text []byte) error {
	names := make([]string, len(all))
	for i, name := range all {
		names[i] = string(name)
	}
	if !slices.Contains(names, string(text)) {
		return &policy.FieldError{Field: field, Value: shown(string(text)), Rule: "must be one of " + strings.Join(names, ", ")}
	}
	*target = T(text)
	return nil
}

// TaskDescription is the problem that scripts solve (DM-007). [LoadTask] reads one from a file
// and checks it.
type TaskDescription struct {
	CompetitionID    string          `json:"competition_id" yaml:"competition_id"`
	TaskType         TaskType        `json:"task_type" yaml:"task_type"`
	DataModality     DataModality    `json:"data_modality" yaml:"data_modality"`
	EvaluationMetric string          `json:"evaluation_metric" yaml:"evaluation_metric"`
	MetricDirection  MetricDirection `json:"metric_direction" yaml:"metric_direction"`
	Description      string          `json:"description" yaml:"description"`
	// DataDir is the directory of the data, or the working directory that has the data as
	// input/; see [TaskDescription.Folders]. Empty is ./input.
	DataDir string `json:"data_dir" yaml:"data_dir"`
	// OutputDir is always ./final, where scripts find it. Empty means the same.
	OutputDir string `json:"output_dir" yaml:"output_dir"`
	// TargetColumn is the column to predict; nil when there is no such column.
	TargetColumn *string `json:"target_column" yaml:"target_column"`
	// BaselineValue is the score to beat; see [BeatsBaseline].
	BaselineValue *float64 `json:"baseline_value" yaml:"baseline_value"`
}

// Validate reports, joined, every required field that is missing and every field that breaks a
// rule. It does not look at the disk.
func (t TaskDescription) Validate() error { return errors.Join(t.problems()...) }

func (t TaskDescription) problems() []error {
	var errs []error
	for _, f := range []struct{ name, value string }{
		{"competition_id", t.CompetitionID}, {"evaluation_metric", t.EvaluationMetric}, {"description", t.Description},
	} {
		if f.value == "" {
			errs = append(errs, &policy.FieldError{Field: f.name, Rule: "is missing"})
		}
	}
	for _, err := range []error{
		new(TaskType).UnmarshalText([]byte(t.TaskType)),
		new(DataModality).UnmarshalText([]byte(t.DataModality)),
		t.MetricDirection.Check(),
	} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if t.BaselineValue != nil && !isFinite(*t.BaselineValue) {
		errs = append(errs, &policy.FieldError{Field: "baseline_value", Value: fmt.Sprint(*t.BaselineValue), Rule: "must be a finite number"})
	}
	if t.OutputDir != "" && filepath.Clean(t.OutputDir) != finalName {
		errs = append(errs, &policy.FieldError{Field: "output_dir", Value: shown(t.OutputDir),
			Rule: "must be ./final: that is where a script finds it"})
	}
	return errs
}

// Folders returns the working directory of the task and the directory of its data. A DataDir
// whose last part is "input" is the data itself, and its parent the working directory; any
// other is the working directory, and its input/ the data. (EX-015 gives data_dir to EX-001,
// which appends input/, and the default of data_dir is ./input.) A relative DataDir is
// relative to the current directory. It does not look at the disk.
func (t TaskDescription) Folders() (base, input string, err error) {
	dir := t.DataDir
	if dir == "" {
		dir = inputName
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", "", fmt.Errorf("data_dir %q: %w", dir, err)
	}
	if filepath.Base(abs) == inputName {
		return filepath.Dir(abs), abs, nil
	}
	return abs, filepath.Join(abs, inputName), nil
}

// CheckData refuses a task whose data directory is missing, is not a directory, or contains no
// file at any depth (AI-11): a search of hours should not begin without data.
func (t TaskDescription) CheckData() error {
	_, input, err := t.Folders()
	if err != nil {
		return err
	}
	info, err := os.Stat(input)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unusable("data_dir", input, "does not exist", nil)
	case err == nil && !info.IsDir():
		return unusable("data_dir", input, "is not a folder", nil)
	}
	found := errors.New("found")
	if err == nil {
		input, err = filepath.EvalSymlinks(input)
	}
	if err == nil {
		err = filepath.WalkDir(input, func(_ string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				return found
			}
			return err
		})
	}
	switch {
	case errors.Is(err, found):
		return nil
	case err != nil:
		return unusable("data_dir", input, "cannot be read", err)
	}
	return unusable("data_dir", input, "holds no file", nil)
}

// LoadTask reads a task from a YAML file with the field names of DM-007. A relative data_dir is
// relative to the file. Everything that is wrong is reported, joined: unknown keys with their
// lines, values that break a rule, required keys that are missing, and a data directory that
// is missing or empty (AI-11).
func LoadTask(path string) (TaskDescription, error) {
	const most = 1 << 20 // a description is prose
	text, err := fsx.Read(path, most)
	if err != nil {
		return TaskDescription{}, taskError(path, strict.Problem{Rule: fsx.Cause(err).Error(), Err: err})
	}
	task, err := parseTask(text, path)
	if err != nil {
		return TaskDescription{}, err
	}
	if !filepath.IsAbs(task.DataDir) {
		abs, err := filepath.Abs(path)
		if err != nil {
			return TaskDescription{}, taskError(path, strict.Problem{Rule: fsx.Cause(err).Error(), Err: err})
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
		if field, ok := errors.AsType[*policy.FieldError](problem.Err); ok {
			problem.Value, problem.Rule = field.Value, field.Rule
		}
		errs = append(errs, taskError(source, problem))
	}
	if len(errs) == 0 {
		for _, err := range task.problems() {
			errs = append(errs, taskError(source, strict.Problem{Rule: err.Error(), Err: err}))
		}
	}
	return task, errors.Join(errs...)
}

// taskError is a problem of a task file. The hint names all keys, unless the problem does.
func taskError(source string, p strict.Problem) error {
	e := &FileError{What: "task", Path: source, Line: p.Line, Rule: p.String(), Err: p.Err, hint: "correct the key, or remove it"}
	if !strings.HasPrefix(e.Rule, "unknown key ") {
		var keys []string
		for field := range reflect.TypeFor[TaskDescription]().Fields() {
			keys = append(keys, field.Tag.Get("yaml"))
		}
		slices.Sort(keys)
		e.hint = "a task file has the keys " + strings.Join(keys, ", ")
	}
	return e
}
