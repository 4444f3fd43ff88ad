package invoke

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
)

// VerifyOptions say what is demanded of artifacts.
type VerifyOptions struct {
	// Mode is about traces.
	Mode Mode
	// Profile declares further artifacts.
	Profile Profile
}

// Verify reads the artifacts of an output directory, checks them and hashes the bytes
// that it checked (M3-04, M3-07, M3-08). It opens regular files only, never through a
// link, reads traces of any size line by line, and changes nothing. What is wrong is in
// the report; the error means that the directory could not be read, or is that of ctx.
func Verify(ctx context.Context, dir string, opts VerifyOptions) (Report, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Report{}, err
	}
	return verify(ctx, dir, opts, nil, []string{abs, OutputDir})
}

// Verify is [Verify] of the output directory of a run that exited with 0. In addition
// all artifacts must be of this run, not from before; of a result that was read back
// from JSON that is not known any more, and if it names no manifest, nothing is.
func (r RunResult) Verify(ctx context.Context, opts VerifyOptions) (Report, error) {
	dir := filepath.Dir(r.ManifestPath)
	switch {
	case r.origin != nil:
		dir = r.origin.dir
	case r.ManifestPath == "":
		return Report{}, errors.New("invoke: the result names no manifest to verify")
	}
	told := dir // what the tool was told that the directory is
	if r.Engine == EngineSandbox {
		told = OutputDir
	}
	return verify(ctx, dir, opts, r.origin, []string{told})
}

// verification is one look at a directory.
type verification struct {
	root *os.Root
	opts VerifyOptions
	// from says which files are of the run.
	from *origin
	// names are what a manifest may call the directory.
	names  []string
	report Report
	// at are the artifacts of the report by path; tried also those that have a problem,
	// and absent those that are optional and not there.
	at            map[string]int
	tried, absent map[string]bool
}

func verify(ctx context.Context, dir string, opts VerifyOptions, from *origin, names []string) (Report, error) {
	if err := opts.Profile.check(nil, "profile"); err != nil {
		return Report{}, err
	}
	root, err := fsx.OpenRoot(dir)
	if err != nil {
		return Report{}, folderError(dir, err)
	}
	defer root.Close()
	v := &verification{
		root: root, opts: opts, from: from, names: names, at: map[string]int{}, tried: map[string]bool{}, absent: map[string]bool{},
		report: Report{Schema: ReportSchemaV1, OK: true, Artifacts: []Artifact{}, Problems: []*ArtifactError{}},
	}
	if err := errors.Join(v.known(ctx), v.list(ctx)); err != nil {
		return Report{}, err
	}
	return v.report, nil
}

// judge tells of an artifact's problem in the report, and returns any other error.
func (v *verification) judge(err error) error {
	var problem *ArtifactError
	if errors.As(err, &problem) {
		v.report.add(problem)
		return nil
	}
	return err
}
