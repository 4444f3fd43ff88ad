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
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// TaskType is the kind of problem (DM-004).
type TaskType string

// UnmarshalText refuses a name that is not a task type.
func (t *TaskType) UnmarshalText(text []byte) error {
	return readName(t, "task_type", string(text), "classification", "regression", "image_classification", "image_to_image",
		"text_classification", "audio_classification", "sequence_to_sequence", "tabular")
}

// DataModality is the kind of data (DM-005).
type DataModality string

// UnmarshalText refuses a name that is not a modality.
func (m *DataModality) UnmarshalText(text []byte) error {
	return readName(m, "data_modality", string(text), "tabular", "image", "text", "audio", "mixed")
}

// readName sets target to a wire name, which must be one of all.
func readName[T ~string](target *T, field, name string, all ...T) error {
	if !slices.Contains(all, T(name)) {
		return &policy.FieldError{Field: field, Value: shown(name), Rule: "must be one of " + text.List(all)}
	}
	*target = T(name)
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
	// DataDir is the directory of the data, or a working directory that has the data as input/; see
	// [TaskDescription.Directories]. Empty is ./input.
	DataDir string `json:"data_dir" yaml:"data_dir"`
	// OutputDir is always ./final, where scripts find it. Empty means the same.
	OutputDir string `json:"output_dir" yaml:"output_dir"`
	// TargetColumn is the column to predict; nil when there is no such column.
	TargetColumn *string `json:"target_column" yaml:"target_column"`
	// BaselineValue is the score to beat.
	BaselineValue *float64 `json:"baseline_value" yaml:"baseline_value"`
	// Layout is the name of a layout of directories that scripts expect; see [Layouts]. Aliases are
	// further names of files: by the name its target, which is input, final or below one of them. See
	// [spec.Alias].
	Layout  string            `json:"layout,omitempty" yaml:"layout"`
	Aliases map[string]string `json:"aliases,omitempty" yaml:"aliases"`
	// ScorePattern, if not empty, is a regular expression (RE2) with one group, which is the score. It
	// is matched with each line of stdout, of which it sees 64 KiB, and the last match counts. Empty
	// means the rule of EX-011. The scores of graders do not depend on it.
	ScorePattern string `json:"score_pattern,omitempty" yaml:"score_pattern"`
}

// Validate reports, joined, every required field that is missing and every field that breaks a
// rule. It does not look at the disk.
func (t TaskDescription) Validate() error { return errors.Join(t.problems()...) }

func (t TaskDescription) problems() []error {
	var errs []error
	refuse := func(field, value, rule string) {
		errs = append(errs, &policy.FieldError{Field: field, Value: value, Rule: rule})
	}
	for _, f := range []struct{ name, value string }{
		{"competition_id", t.CompetitionID}, {"evaluation_metric", t.EvaluationMetric}, {"description", t.Description},
	} {
		if f.value == "" {
			refuse(f.name, "", "is missing")
		}
	}
	for _, err := range []error{
		new(TaskType).UnmarshalText([]byte(t.TaskType)),
		new(DataModality).UnmarshalText([]byte(t.DataModality)),
		t.MetricDirection.Check(),
		errOf(t.allAliases("")), errOf(scorePattern(t.ScorePattern)),
	} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if t.BaselineValue != nil && !isFinite(*t.BaselineValue) {
		refuse("baseline_value", fmt.Sprint(*t.BaselineValue), "must be a finite number")
	}
	if t.OutputDir != "" && filepath.Clean(t.OutputDir) != finalName {
		refuse("output_dir", shown(t.OutputDir), "must be ./final: that is where a script finds it")
	}
	return errs
}

func errOf[T any](_ T, err error) error { return err }

// Directories returns the working directory of the task and the directory of its data. A DataDir that
// contains the directory input, is empty, or does not exist, is the working directory: EX-015
// gives data_dir to EX-001, which makes input/ in it. Any other DataDir, and each whose last part is
// "input", is the data itself, and its parent the working directory. A relative DataDir is relative to the
// current directory.
func (t TaskDescription) Directories() (base, input string, err error) {
	dir := t.DataDir
	if dir == "" {
		dir = inputName
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", "", fmt.Errorf("data_dir %q: %w", dir, err)
	}
	if filepath.Base(abs) == inputName || holdsData(abs) {
		return filepath.Dir(abs), abs, nil
	}
	return abs, filepath.Join(abs, inputName), nil
}

// holdsData reports whether a directory has entries, and no directory input.
func holdsData(dir string) bool {
	if info, err := os.Stat(filepath.Join(dir, inputName)); err == nil && info.IsDir() {
		return false
	}
	return len(firstNames(dir, 1)) > 0
}

// CheckData refuses a task whose data directory is missing, is not a directory, or contains no
// file at any depth (AI-11): a search of hours should not begin without data.
func (t TaskDescription) CheckData() error {
	base, input, err := t.Directories()
	if err != nil {
		return err
	}
	if info, err := os.Stat(base); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		input = base // the directory that the task names
	}
	info, err := os.Stat(input)
	if errors.Is(err, fs.ErrNotExist) {
		return unusable("data_dir", input, "does not exist", nil)
	}
	if err == nil && !info.IsDir() {
		return unusable("data_dir", input, "is not a directory", nil)
	}
	found := false
	if err == nil {
		err = filepath.WalkDir(input+string(filepath.Separator), func(_ string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				found = true
				return filepath.SkipAll
			}
			return err
		})
	}
	switch {
	case err != nil:
		return unusable("data_dir", input, "cannot be read", err)
	case !found:
		return unusable("data_dir", input, "holds no file", nil)
	}
	return nil
}

// LoadTask is [ReadTask], and also reports a data directory that is missing or empty (AI-11).
func LoadTask(path string) (TaskDescription, error) {
	task, err := ReadTask(path)
	if err != nil {
		return TaskDescription{}, err
	}
	return task, task.CheckData()
}

// ReadTask reads a task from a YAML file with the field names of DM-007. A relative data_dir is
// relative to the file. Everything that is wrong is reported, joined: unknown keys with their
// lines, values that break a rule, and required keys that are missing.
func ReadTask(path string) (TaskDescription, error) {
	const most = 1 << 20 // a description is prose
	content, err := fsx.Read(path, most)
	dir := ""
	if err == nil {
		dir, err = filepath.Abs(filepath.Dir(path))
	}
	if err != nil {
		return TaskDescription{}, taskError(path, strict.Problem{Rule: fsx.Cause(err).Error(), Err: err})
	}
	task, err := ParseTask(content, path)
	if err != nil {
		return TaskDescription{}, err
	}
	if !filepath.IsAbs(task.DataDir) {
		task.DataDir = filepath.Join(dir, task.DataDir)
	}
	return task, nil
}

// ParseTask reads the text of a task file. source is its name in messages. A relative data_dir stays
// so, and is not looked at.
func ParseTask(content []byte, source string) (TaskDescription, error) {
	task := TaskDescription{DataDir: "./" + inputName, OutputDir: "./" + finalName}
	var errs []error
	for _, problem := range strict.Decode(content, &task, strict.Options{Lenient: true}) {
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
