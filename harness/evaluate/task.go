package evaluate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// TaskType is the kind of problem (DM-004).
type TaskType string

// TaskTypes returns all kinds of problems.
func TaskTypes() []TaskType {
	return []TaskType{"classification", "regression", "image_classification", "image_to_image", "text_classification",
		"audio_classification", "sequence_to_sequence", "tabular"}
}

// UnmarshalText refuses a name that is no task type.
func (t *TaskType) UnmarshalText(text []byte) error {
	return readName(t, "task_type", TaskTypes(), text)
}

// DataModality is the kind of data (DM-005).
type DataModality string

// DataModalities returns all kinds of data.
func DataModalities() []DataModality {
	return []DataModality{"tabular", "image", "text", "audio", "mixed"}
}

// UnmarshalText refuses a name that is no modality.
func (m *DataModality) UnmarshalText(text []byte) error {
	return readName(m, "data_modality", DataModalities(), text)
}

// Where scripts find their data and leave their results, seen from the working
// folder (EX-001).
const (
	inputName = "input"
	finalName = "final"
)

// TaskDescription is the problem that scripts solve (DM-007). [LoadTask] reads one
// from a file and checks it.
type TaskDescription struct {
	CompetitionID    string          `json:"competition_id" yaml:"competition_id"`
	TaskType         TaskType        `json:"task_type" yaml:"task_type"`
	DataModality     DataModality    `json:"data_modality" yaml:"data_modality"`
	EvaluationMetric string          `json:"evaluation_metric" yaml:"evaluation_metric"`
	MetricDirection  MetricDirection `json:"metric_direction" yaml:"metric_direction"`
	Description      string          `json:"description" yaml:"description"`
	// DataDir is the folder of the data, or the working folder that holds it as
	// input/; see [TaskDescription.Folders]. Empty is ./input.
	DataDir string `json:"data_dir" yaml:"data_dir"`
	// OutputDir is always ./final: that is where a script finds it. Empty is the
	// same.
	OutputDir string `json:"output_dir" yaml:"output_dir"`
	// TargetColumn names what is to be predicted; nil when there is no such column.
	TargetColumn *string `json:"target_column" yaml:"target_column"`
	// BaselineValue is the score to beat; see [BeatsBaseline].
	BaselineValue *float64 `json:"baseline_value" yaml:"baseline_value"`
}

// Validate reports every required field that is missing and every field that
// breaks a rule, joined. It does not look at the disk.
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

// Folders returns the working folder of the task and the folder of its data. A
// DataDir whose last part is "input" is the data itself, and its parent the working
// folder; any other is the working folder, and its input/ the data. (EX-015 gives
// data_dir to EX-001, which appends input/, and the default of data_dir is ./input.)
// It does not look at the disk; a relative DataDir is taken from the current folder.
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

// CheckData refuses a task whose data folder is missing, is no folder, or holds no
// file at any depth (AI-11): a search that runs for hours should not begin with it.
func (t TaskDescription) CheckData() error {
	_, input, err := t.Folders()
	if err != nil {
		return err
	}
	info, err := os.Stat(input)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &sandbox.PathError{Field: "data_dir", Path: input, Rule: "does not exist"}
	case err != nil:
		return &sandbox.PathError{Field: "data_dir", Path: input, Rule: "cannot be read", Err: fsx.Cause(err)}
	case !info.IsDir():
		return &sandbox.PathError{Field: "data_dir", Path: input, Rule: "is not a folder"}
	}
	if input, err = filepath.EvalSymlinks(input); err != nil {
		return &sandbox.PathError{Field: "data_dir", Path: input, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	found := errors.New("found")
	err = filepath.WalkDir(input, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			return found
		}
		return err
	})
	switch {
	case err == nil:
		return &sandbox.PathError{Field: "data_dir", Path: input, Rule: "holds no file"}
	case !errors.Is(err, found):
		return &sandbox.PathError{Field: "data_dir", Path: input, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	return nil
}
