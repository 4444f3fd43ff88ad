package contract

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Resolved are the files of a contract on this host: every path with its links resolved, and
// where the container has it.
type Resolved struct {
	// Root is the host directory that is /repo in the container.
	Root string
	// WorkDir is the working directory in the container.
	WorkDir string
	Mounts  []sandbox.Mount
	Trees   []sandbox.Tree
	// Masks are hidden paths in the container.
	Masks []string
	// InputFiles are the declared inputs, with their hashes.
	InputFiles []trial.File
	Warnings   []string

	// outputs and artifacts are the declared ones, in the order of the contract.
	outputs, artifacts []declared
	// denied are the host paths that must not be written.
	denied []string
	// absent are the masks of missing files, which hide nothing.
	absent []string
	// opened are the working directory and the paths of read and write.
	opened []hostPath
	// git are the paths of write that lie in a .git directory.
	git []string
}

// declared is a file that the program must write.
type declared struct {
	field string
	// path is the path of the contract, target the one in the container.
	path, target string
	// source is the host path; empty for a file of ./final.
	source string
}

// Resolve looks up the files that a contract names: where its paths lead, whether its level
// permits that, and the content of its input files (IV-03, IV-05, CX-03). It returns all
// violations in the order of the fields; Resolved is valid only if there are none. It changes
// nothing.
//
// Root is the host directory that paths are relative to. Dependencies are the directories
// outside of it that the level extended may read. No level opens a path of forbidden, or a
// directory that holds one.
func Resolve(c Contract, root string, e Effective, dependencies, forbidden []string) (Resolved, []Violation) {
	r := &resolver{level: e.FilesystemLevel, dependencies: realPaths(dependencies), forbidden: realPaths(forbidden)}
	if !r.findRoot(root) {
		return Resolved{}, r.violations
	}
	r.workDir = r.directory("inputs.working_directory", c.Inputs.WorkingDirectory)
	r.read = r.list("sandbox.filesystem.read", c.Sandbox.Filesystem.Read, false)
	r.write = r.list("sandbox.filesystem.write", c.Sandbox.Filesystem.Write, true)
	r.hide(c.Sandbox.Filesystem.Deny)
	if r.workDir.real == "" {
		return Resolved{}, r.violations
	}
	r.open()
	for _, p := range r.reads {
		r.Mounts = append(r.Mounts, sandbox.Mount{Source: p, Target: r.inside(p)})
	}
	for _, p := range r.writes {
		r.Trees = append(r.Trees, sandbox.Tree{Source: p, Target: r.inside(p)})
	}
	r.mask()
	r.hashInputs(c.Inputs.InputFiles)
	for i, path := range c.Outputs.OutputFiles {
		r.outputs = append(r.outputs, r.output(fmt.Sprintf("outputs.output_files[%d]", i), path))
	}
	for i, artifact := range c.Outputs.Artifacts {
		r.artifacts = append(r.artifacts, r.output(fmt.Sprintf("outputs.artifacts[%d].path", i), artifact.Path))
	}
	return r.Resolved, r.violations
}

// resolver collects the results of [Resolve].
type resolver struct {
	Resolved
	level                   policy.FilesystemLevel
	dependencies, forbidden []string

	workDir           hostPath
	read, write, deny []hostPath
	// reads and writes are what the program sees of the host: sorted host paths, none inside
	// another.
	reads, writes []string
	violations    []Violation
}

// refuse adds a violation by a path. An empty rule adds nothing.
func (r *resolver) refuse(code string, p hostPath, rule, hint string) {
	if rule != "" {
		r.violations = append(r.violations, Violation{Code: code, Field: p.field, Value: quoted(p.asked), Rule: rule, Hint: hint})
	}
}

// findRoot resolves the root, which the operator chooses.
func (r *resolver) findRoot(root string) bool {
	found, rule := lookUp(root)
	switch {
	case rule != "":
	case !found.info.IsDir():
		rule = "is not a directory"
	case found.real == filepath.Dir(found.real):
		rule = "is the root of the file system: give a directory in it"
	default:
		rule = r.closed(found.real)
	}
	found.field = "root"
	r.refuse("CX-03", found, rule, "")
	r.Root = found.real
	return rule == ""
}

// directory resolves a directory below the root, at any level.
func (r *resolver) directory(field, asked string) hostPath {
	p, rule := r.at(field, asked, r.Root)
	switch {
	case rule != "":
	case !fsx.Within(p.real, r.Root):
		rule = r.outside(p)
	case !p.info.IsDir():
		rule = "is not a directory"
	}
	if rule != "" {
		r.refuse("IV-03", p, rule, "")
		return hostPath{}
	}
	return p
}

// outside says that a path leads out of the root, and where to.
func (r *resolver) outside(p hostPath) string {
	if filepath.Clean(p.asked) == p.real {
		return "is not below the root " + r.Root
	}
	return fmt.Sprintf("leads to %s, which is not below the root %s", p.real, r.Root)
}

// list resolves the paths of read or write.
func (r *resolver) list(name string, asked []string, write bool) (paths []hostPath) {
	for i, path := range asked {
		p, rule := r.at(fmt.Sprintf("%s[%d]", name, i), path, r.Root)
		hint := ""
		if rule == "" {
			rule, hint = r.permitted(p, write)
		}
		if r.refuse("CX-03", p, rule, hint); rule == "" {
			paths = append(paths, p)
		}
	}
	return paths
}

// permitted returns the rule of the level that a path of read or write breaks, with a hint.
func (r *resolver) permitted(p hostPath, write bool) (rule, hint string) {
	if rule := r.closed(p.real); rule != "" {
		return rule, hintLevels
	}
	if write && !p.info.IsDir() {
		return "is not a directory: give the directory that it is in", ""
	}
	if !p.info.IsDir() && !p.info.Mode().IsRegular() {
		return "is neither a file nor a directory", ""
	}
	switch level := r.level; {
	case r.opens(p.real, write):
		return "", ""
	case level == policy.Extended && write:
		return r.outside(p) + "; level extended writes below the root only", hintLevels
	case level == policy.Extended:
		return r.outside(p) + ", nor below a directory of contract_dependencies; it takes level elevated", hintDependencies
	case level == policy.Standard && write:
		return "is not below the working directory; level standard writes nothing else", hintLevels
	case level == policy.Standard:
		return r.outside(p) + "; level standard reads nothing else", hintLevels
	case write:
		return "level minimal writes nothing", hintLevels
	}
	return "is not below the working directory; level minimal reads nothing else", hintLevels
}

// opens reports whether the level opens a path of read or write.
func (r *resolver) opens(real string, write bool) bool {
	inRoot, inWork := fsx.Within(real, r.Root), r.workDir.real != "" && fsx.Within(real, r.workDir.real)
	return r.level == policy.Elevated ||
		r.level == policy.Extended && (inRoot || !write && r.isDependency(real)) ||
		r.level == policy.Standard && (inWork || !write && inRoot) ||
		r.level == policy.Minimal && inWork && !write
}

// isDependency reports whether the operator lets the level extended read a path. A dependency
// that holds system directories does not open them.
func (r *resolver) isDependency(real string) bool {
	return slices.ContainsFunc(r.dependencies, func(dir string) bool {
		return fsx.Within(real, dir) && (isSystem(dir) || !isSystem(real))
	})
}

// hide resolves the paths of deny. A missing file hides nothing now, but must not be written
// either. A path that the contract needs must not be hidden.
func (r *resolver) hide(asked []string) {
	for i, path := range asked {
		p, rule := r.at(fmt.Sprintf("sandbox.filesystem.deny[%d]", i), path, r.Root)
		switch {
		case rule != "" && p.missing() && p.real != "":
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s %s: nothing is there, so nothing is hidden", p.field, quoted(path)))
		case rule != "":
			r.refuse("CX-03", p, rule, "")
			continue
		default:
			for _, open := range slices.Concat([]hostPath{r.workDir}, r.read, r.write) {
				if open.real != "" && (fsx.Within(open.real, p.real) || sameFile(open, p)) {
					r.refuse("CX-03", p, fmt.Sprintf("hides %s %q", open.field, open.asked), "")
				}
			}
		}
		r.deny = append(r.deny, p)
	}
}

// hiddenBy returns the field that hides a path; empty if none does.
func (r *resolver) hiddenBy(p hostPath) string {
	for _, d := range r.deny {
		if fsx.Within(p.real, d.real) || sameFile(p, d) {
			return d.field
		}
	}
	return ""
}

// open finds what the level and the lists open.
func (r *resolver) open() {
	r.WorkDir, r.opened = r.inside(r.workDir.real), slices.Concat([]hostPath{r.workDir}, r.read, r.write)
	reads, writes := []string{r.workDir.real}, []string(nil)
	if r.level != policy.Minimal {
		reads, writes = []string{r.Root}, []string{r.workDir.real}
	}
	for _, p := range r.read {
		reads = append(reads, p.real)
	}
	for _, p := range r.write {
		writes = append(writes, p.real)
		if slices.ContainsFunc(strings.Split(p.real, "/"), func(name string) bool { return strings.EqualFold(name, ".git") }) {
			r.git = append(r.git, p.real)
		}
	}
	r.writes = outermost(writes, nil)
	r.reads = outermost(reads, r.writes)
}

// mask hides the denied paths that the program would see.
func (r *resolver) mask() {
	var hidden []string
	for _, d := range r.deny {
		r.denied = append(r.denied, d.real)
		if r.sees(d.real) {
			hidden = append(hidden, d.real)
		}
	}
	for _, p := range outermost(hidden, nil) { // one mask hides everything in it
		r.Masks = append(r.Masks, r.inside(p))
	}
	for _, d := range r.deny {
		if target := r.inside(d.real); d.missing() && slices.Contains(r.Masks, target) {
			r.absent = append(r.absent, target)
		}
	}
}

// hashInputs hashes the declared inputs (IV-05).
func (r *resolver) hashInputs(asked []string) {
	room := int64(MaxInputFiles)
	for i, path := range asked {
		p, rule := r.at(fmt.Sprintf("inputs.input_files[%d]", i), path, r.workDir.real)
		code, hint := "IV-05", ""
		switch {
		case p.real != "" && !r.sees(p.real):
			code = "IV-03"
			rule, hint = r.invisible(p)
		case rule != "":
		case r.hiddenBy(p) != "":
			code, rule = "CX-03", "is hidden by "+r.hiddenBy(p)
		case !p.info.Mode().IsRegular():
			rule = "is not a regular file"
		}
		var file trial.File
		if rule == "" {
			file, rule = hashFile(p, &room)
		}
		if rule != "" {
			r.refuse(code, p, rule, hint)
			continue
		}
		file.Path = path
		r.InputFiles = append(r.InputFiles, file)
		if asked := r.absolute(path, r.workDir.real); fsx.Within(asked, r.Root) && asked != p.real {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s %s is a link: the program finds it at %s", p.field, path, r.inside(p.real)))
		}
	}
}

// invisible says that the program cannot see a path.
func (r *resolver) invisible(p hostPath) (rule, hint string) {
	switch wide := r.level == policy.Extended || r.level == policy.Elevated; {
	case !wide && !fsx.Within(p.real, r.Root):
		return r.outside(p), ""
	case r.level == policy.Minimal:
		return "is not among what level minimal shows: the working directory", hintLevels
	case r.level == policy.Standard:
		return "is not among what level standard shows: the root", hintLevels
	}
	return "is neither below the root nor below what sandbox.filesystem.read and write name", ""
}

// output finds the place of a declared output.
func (r *resolver) output(field, asked string) declared {
	if final := filepath.Clean(asked); final != spec.FinalDir && fsx.Within(final, spec.FinalDir) {
		return declared{field: field, path: asked, target: final}
	}
	// The file and its directory may be missing: the links of the existing part decide.
	path := r.absolute(asked, r.workDir.real)
	p := hostPath{field: field, asked: asked, real: filepath.Join(fsx.RealPath(filepath.Dir(path)), filepath.Base(path))}
	rule, code := "", "CX-05"
	writer := slices.IndexFunc(r.writes, func(dir string) bool { return fsx.Within(p.real, dir) })
	switch {
	case !fsx.Within(p.real, r.Root) && r.level != policy.Elevated:
		rule, code = r.outside(p), "IV-03"
	case writer < 0:
		rule = fmt.Sprintf("is not below what the program may write: %s, or %s",
			cmp.Or(strings.Join(r.writes, ", "), "nothing of the host"), spec.FinalDir)
	case p.real == r.writes[writer] || fsx.IsDir(p.real):
		rule = "is a directory"
	case r.hiddenBy(p) != "":
		rule = "is hidden by " + r.hiddenBy(p)
	}
	r.refuse(code, p, rule, "")
	return declared{field: field, path: asked, source: p.real, target: r.inside(p.real)}
}
