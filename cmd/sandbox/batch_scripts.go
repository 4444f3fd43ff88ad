package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/policy"
)

// batchEntry is one evaluation of a batch. Of the script it has the hash only:
// thousands of scripts need not be in memory at once.
type batchEntry struct {
	path, name, folder, sha256 string
	seed                       *uint32
}

// listScripts are the scripts of a command line, or of the list that it names. Those
// with something wrong are left out; the error says what.
func (f batchFlags) listScripts(ctx context.Context, args []string) ([]evaluate.ListedScript, error) {
	if f.from != "" {
		// It may be a pipe that nobody writes to.
		listed, err := interruptibly(ctx, func() ([]evaluate.ListedScript, error) { return evaluate.LoadList(f.from) })
		wrong := map[string]bool{}
		for _, e := range joined(err) {
			if list := new(evaluate.ListError); errors.As(e, &list) {
				wrong[list.Source+":"+strconv.Itoa(list.Line)] = true
			}
		}
		return slices.DeleteFunc(listed, func(l evaluate.ListedScript) bool { return wrong[l.Source] }), err
	}
	var listed []evaluate.ListedScript
	var errs []error
	for _, path := range args {
		script := evaluate.ScriptNamed(path)
		if err := policy.CheckName("name", script.Name); err != nil {
			errs = append(errs, &evaluate.ListError{Source: path, Rule: err.Error(), Err: err})
			continue
		}
		listed = append(listed, script)
	}
	return listed, errors.Join(errs...)
}

// entries reads every script once and returns what is to be evaluated: each script
// with each seed. Everything that is wrong is reported at once: a script that is
// missing, and two of the same name.
func (f batchFlags) entries(listed []evaluate.ListedScript) ([]batchEntry, error) {
	var entries []batchEntry
	var errs []error
	refuse := func(l evaluate.ListedScript, rule string, err error) {
		errs = append(errs, &evaluate.ListError{Source: l.Source, Rule: rule, Err: err})
	}
	named, folders := map[string]string{}, map[string]string{}
	for _, l := range listed {
		if first, twice := named[l.Name]; twice {
			refuse(l, fmt.Sprintf("the name %q is that of %s, too: names must differ", l.Name, first), nil)
			continue
		}
		named[l.Name] = l.Source
		text, err := readScript(l.Script)
		switch {
		case err != nil && l.Source == l.Script:
			errs = append(errs, err) // it names the script
			continue
		case err != nil:
			refuse(l, err.Error(), err)
			continue
		}
		seeds := f.seedsOf(l)
		if l.Seed != nil && len(f.seeds) > 0 {
			refuse(l, "has a seed of its own: leave that or --seeds out", nil)
			continue
		}
		for _, seed := range seeds {
			folder := l.Name
			if len(seeds) > 1 {
				folder += "-seed-" + strconv.FormatUint(uint64(*seed), 10)
			}
			if other, twice := folders[folder]; twice {
				refuse(l, fmt.Sprintf("its working folder %s is that of %s, too", folder, other), nil)
				continue
			}
			folders[folder] = l.Source
			entries = append(entries, batchEntry{path: l.Script, name: l.Name, seed: seed,
				folder: filepath.Join(f.workspace, folder), sha256: evaluate.NewSolution(text, evaluate.PhaseInit).SHA256()})
		}
	}
	return entries, errors.Join(errs...)
}

// seedsOf are the seeds that a script is run with; one nil for none.
func (f batchFlags) seedsOf(l evaluate.ListedScript) []*uint32 {
	if len(f.seeds) == 0 {
		return []*uint32{l.Seed}
	}
	var seeds []*uint32
	for _, seed := range f.seeds {
		seeds = append(seeds, new(seed))
	}
	return seeds
}

// solution reads a script again, right before it is evaluated.
func (e batchEntry) solution() (evaluate.SolutionScript, error) {
	text, err := readScript(e.path)
	if err != nil {
		return evaluate.SolutionScript{}, err
	}
	solution := evaluate.NewSolution(text, evaluate.PhaseInit)
	if solution.SHA256() != e.sha256 {
		return solution, &fileError{fileScript, e.path, errors.New("has changed since the batch began")}
	}
	return solution, nil
}

// asked is the evaluation of an entry that did not take place yet.
func (e batchEntry) asked(competition, setup string) evaluate.Evaluation {
	return evaluate.Evaluation{
		Schema: evaluate.EvaluationSchemaV1, Name: e.name, CompetitionID: competition, ScriptSHA256: e.sha256,
		OriginalSHA256: e.sha256, SetupSHA256: setup, Seed: e.seed,
		EvaluationResult: evaluate.EvaluationResult{ExitCode: -1, Warnings: []string{}},
	}
}
