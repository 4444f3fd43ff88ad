package stage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/archive"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// treeDir is the directory of a working copy in the staging volume.
func treeDir(i int) string { return path.Join(archive.TreesDir, strconv.Itoa(i)) }

// packing is one archive that fills a staging volume.
type packing struct {
	*Stage
	to       *archive.Packer
	uid, gid int
	// warnings name files that are left out.
	warnings []string
}

// pack writes the archive that fills the staging volume. It returns warnings about files
// that are left out.
func (c *copies) pack(ctx context.Context, to io.Writer) (warnings []string, err error) {
	p := &packing{Stage: c.Stage, to: archive.NewPacker(to)}
	if p.uid, p.gid, err = numericUser(c.Plan.Class.User); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{p.program, p.input, p.mounts, p.outputs, p.trees} {
		if err := step(ctx); err != nil {
			return p.warnings, err
		}
	}
	err = p.to.Close()
	p.omitted("input") // the number of further entries
	return p.warnings, err
}

// packAhead packs everything that the container of a run mounts, empty.
func packAhead(s *Stage) (io.Reader, error) {
	var points bytes.Buffer
	p := &packing{Stage: s, to: archive.NewPacker(&points)}
	var err error
	if p.uid, p.gid, err = numericUser(s.Plan.Class.User); err != nil {
		return nil, err
	}
	var errs []error
	if script := s.Plan.Job.Script; script != "" {
		errs = append(errs, p.to.Dir(archive.ProgramDir, 0, 0, 0o555), p.to.Empty(path.Join(archive.ProgramDir, filepath.Base(script))))
	}
	empty := func(name, target string) {
		errs = append(errs, p.to.Dir(name, 0, 0, 0o555), p.points(name, pointsOf(s.Plan, target)))
	}
	empty(archive.InputDir, spec.InputDir)
	errs = append(errs, p.ownFiles())
	if len(s.Plan.Job.Mounts) > 0 {
		errs = append(errs, p.to.Dir(archive.MountsDir, 0, 0, 0o555))
	}
	for i, m := range s.Plan.Job.Mounts {
		if name := path.Join(archive.MountsDir, strconv.Itoa(i)); fsx.IsDir(m.Source) {
			empty(name, m.Target)
		} else {
			errs = append(errs, p.to.Empty(name))
		}
	}
	return &points, errors.Join(append(errs, p.outputs(context.Background()), p.to.Close())...)
}

func (p *packing) program(context.Context) error {
	program := p.Sources[spec.RoleProgram]
	if program == "" {
		return nil
	}
	name := filepath.Base(program)
	return errors.Join(p.to.Dir(archive.ProgramDir, 0, 0, 0o555),
		inDir("script", filepath.Dir(program), func(root *os.Root) error {
			return p.to.File(path.Join(archive.ProgramDir, name), root, name)
		}))
}

func (p *packing) input(ctx context.Context) error {
	input := p.Plan.Job.Input
	if input == "" {
		return errors.Join(p.to.Dir(archive.InputDir, 0, 0, 0o555), p.points(archive.InputDir, pointsOf(p.Plan, spec.InputDir)))
	}
	defer p.omitted("input")
	return inDir("input", input, p.Verified.Guard(input, ".", func(root *os.Root) error {
		return p.to.Tree(ctx, archive.InputDir, root, p.hidden(spec.InputDir))
	}))
}

// ownFiles packs the file that hides others, and the files of accounts.
func (p *packing) ownFiles() (err error) {
	if len(p.Plan.Class.Masks) > 0 {
		err = p.to.Empty(archive.EmptyFile)
	}
	for _, f := range spec.AccountFiles(p.Plan.Class.User) {
		err = errors.Join(err, p.to.Text(f.Role, f.Text))
	}
	return err
}

func (p *packing) mounts(ctx context.Context) error {
	if err := p.ownFiles(); err != nil {
		return err
	}
	if len(p.Plan.Job.Mounts) == 0 {
		return nil
	}
	if err := p.to.Dir(archive.MountsDir, 0, 0, 0o555); err != nil {
		return err
	}
	for i, m := range p.Plan.Job.Mounts {
		name, dir, guarded := path.Join(archive.MountsDir, strconv.Itoa(i)), m.Source, "."
		pack := func(root *os.Root) error { return p.to.Tree(ctx, name, root, p.hidden(m.Target)) }
		if !fsx.IsDir(m.Source) {
			dir, guarded = filepath.Dir(m.Source), filepath.Base(m.Source)
			pack = func(root *os.Root) error { return p.to.File(name, root, filepath.Base(m.Source)) }
		}
		err := inDir("mount", dir, p.Verified.Guard(m.Source, guarded, pack))
		p.omitted(m.Target)
		if err != nil {
			return err
		}
	}
	return nil
}

// outputs packs an empty ./final.
func (p *packing) outputs(context.Context) error {
	return errors.Join(p.to.Dir(archive.OutDir, 0, 0, 0o755), p.to.Dir(archive.FinalDir, p.uid, p.gid, 0o755))
}

// trees packs the working copies.
func (p *packing) trees(ctx context.Context) error {
	if len(p.Stage.trees) == 0 {
		return nil
	}
	if err := p.to.Dir(archive.TreesDir, 0, 0, 0o755); err != nil {
		return err
	}
	return p.copyTrees(ctx, func(i int, _ *workingCopy) (tree.Sink, error) {
		return p.to.Sink(treeDir(i), p.uid, p.gid), p.to.Dir(treeDir(i), p.uid, p.gid, 0o755)
	})
}

// hidden says which paths of a mount are hidden: they are not sent to another machine.
func (p *packing) hidden(target string) func(name string) bool {
	var hidden tree.Paths
	for _, mask := range p.Plan.Class.Masks {
		if spec.Below(mask.Target, target) {
			hidden = append(hidden, spec.Rel(mask.Target, target))
		}
	}
	return hidden.Has
}

// omitted turns the files that the packer left out since the last call into warnings.
func (p *packing) omitted(of string) {
	for _, each := range p.to.Omitted {
		p.warnings = append(p.warnings, "left out of "+of+": "+each)
	}
	p.to.Omitted = nil
}

// points packs mount points.
func (p *packing) points(dir string, points map[string]bool) error {
	made := map[string]bool{}
	var mkdir func(name string) error
	mkdir = func(name string) error {
		if name == "." || made[name] {
			return nil
		}
		made[name] = true
		return errors.Join(mkdir(path.Dir(name)), p.to.Dir(path.Join(dir, name), 0, 0, 0o555))
	}
	for _, name := range slices.Sorted(maps.Keys(points)) {
		err := mkdir(path.Dir(name))
		if points[name] {
			err = errors.Join(err, mkdir(name))
		} else {
			err = errors.Join(err, p.to.Empty(path.Join(dir, name)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inDir opens a directory for do. A file that do cannot read becomes a [spec.PathError] of
// the field.
func inDir(field, dir string, do func(*os.Root) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return &spec.PathError{Field: field, Path: dir, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	err = errors.Join(do(root), root.Close())
	var file *fs.PathError
	if errors.As(err, &file) {
		return &spec.PathError{Field: field, Path: filepath.Join(dir, file.Path), Rule: "cannot be copied to the engine", Err: file.Err}
	}
	return err
}
