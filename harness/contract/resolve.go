package contract

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Where the host's files are inside the container.
const (
	// rootTarget is where the root is.
	rootTarget = "/repo"
	// hostTarget is what the paths of everything else begin with.
	hostTarget = "/host"
)

// Resolved are the files of a contract as this host has them: every path with its
// links resolved, and what the container is to show of it.
type Resolved struct {
	// Root is the host folder that is /repo inside.
	Root string
	// WorkDir is the working directory inside the container.
	WorkDir string
	Mounts  []sandbox.Mount
	Trees   []sandbox.Tree
	// Masks are what is hidden, as paths inside the container.
	Masks []string
	// InputFiles are the declared inputs, with their hashes.
	InputFiles []InputFile
	// Warnings are what a careful reader should know.
	Warnings []string

	// outputs and artifacts are the declared ones, in the order of the contract.
	outputs, artifacts []declared
	// denied are the host paths that must not be written.
	denied []string
	// absent are masks of what is not there: nothing is hidden by them.
	absent []string
	// places are the folders and files that the level opens.
	places []place
	// git are the host paths of Git that the contract names to be written.
	git []string
	// inputs are the input files as they were when they were hashed.
	inputs []place
}

// declared is one file that the program must write.
type declared struct {
	field string
	// path is the path of the contract, target the one inside the container.
	path, target string
	// source is the host path; empty for a file of ./final.
	source string
}

// A place is one path of a contract on this host.
type place struct {
	// field and asked are what the contract says.
	field, asked string
	// real is the absolute path with links resolved.
	real string
	// info is what lies there; nil if nothing does.
	info fs.FileInfo
}

func (p place) missing() bool { return p.info == nil }

// Resolve looks at the files that a contract names: where its paths lead, whether its
// level permits that, and what its input files hold (IV-03, IV-05, CX-03). It returns
// everything that is wrong, in the order of the fields; Resolved is for use only if
// nothing is. It changes nothing.
//
// Root is the host folder that paths are relative to. Dependencies are the folders
// outside of it that level extended may read. Forbidden are host paths that no program
// may be shown, nor anything that holds them.
func Resolve(c Contract, root string, e Effective, dependencies, forbidden []string) (Resolved, []Violation) {
	r := &resolver{level: e.FilesystemLevel, dependencies: realPaths(dependencies), forbidden: realPaths(forbidden)}
	if !r.findRoot(root) {
		return Resolved{}, r.violations
	}
	r.workDir = r.folder("inputs.working_directory", c.Inputs.WorkingDirectory, "IV-03")
	r.read = r.list("sandbox.filesystem.read", c.Sandbox.Filesystem.Read)
	r.write = r.list("sandbox.filesystem.write", c.Sandbox.Filesystem.Write)
	r.denied(c.Sandbox.Filesystem.Deny)
	if r.workDir.real == "" {
		return Resolved{}, r.violations
	}
	shown := r.plan()
	out := Resolved{
		Root: r.root, WorkDir: inside(r.root, r.workDir.real),
		Mounts: shown.mounts(r.root), Trees: shown.trees(r.root), Masks: shown.masks(r.root, r.deny),
	}
	r.inputs(c.Inputs.InputFiles, shown, &out)
	for i, path := range c.Outputs.OutputFiles {
		out.outputs = append(out.outputs, r.output(fmt.Sprintf("outputs.output_files[%d]", i), path, shown))
	}
	for i, artifact := range c.Outputs.Artifacts {
		out.artifacts = append(out.artifacts, r.output(fmt.Sprintf("outputs.artifacts[%d].path", i), artifact.Path, shown))
	}
	for _, d := range r.deny {
		if target := inside(r.root, d.real); d.missing() && slices.Contains(out.Masks, target) {
			out.absent = append(out.absent, target)
		}
	}
	out.places = slices.Concat([]place{r.workDir}, r.read, r.write)
	for _, p := range r.write {
		if slices.ContainsFunc(strings.Split(p.real, "/"), func(name string) bool { return strings.EqualFold(name, ".git") }) {
			out.git = append(out.git, p.real)
		}
	}
	for _, d := range r.deny {
		out.denied = append(out.denied, d.real)
	}
	out.Warnings = r.warnings
	return out, r.violations
}

// resolver collects what is found on the way.
type resolver struct {
	level        policy.FilesystemLevel
	dependencies []string
	forbidden    []string
	root         string
	workDir      place
	read         []place
	write        []place
	deny         []place

	violations []Violation
	warnings   []string
}

func (r *resolver) refuse(code, field, value, rule string) {
	r.violations = append(r.violations, Violation{Code: code, Field: field, Value: quoted(value), Rule: rule})
}

// findRoot resolves the root, which is the operator's word and not the contract's.
func (r *resolver) findRoot(root string) bool {
	found, rule := look(root)
	switch {
	case rule != "":
	case !found.info.IsDir():
		rule = "is not a folder"
	case found.real == filepath.Dir(found.real):
		rule = "is the root of the file system: give a folder in it"
	default:
		rule = r.touches(found.real)
	}
	if rule != "" {
		r.refuse("CX-03", "root", root, rule)
		return false
	}
	r.root = found.real
	return true
}

// folder resolves a folder that lies below the root, whatever the level.
func (r *resolver) folder(field, asked, code string) place {
	p, rule := r.at(field, asked, r.root)
	switch {
	case rule != "":
	case !fsx.Within(p.real, r.root):
		rule = r.outside(p)
	case !p.info.IsDir():
		rule = "is not a folder"
	}
	if rule != "" {
		r.refuse(code, field, asked, rule)
		return place{}
	}
	return p
}

// outside says of a path that it leads out of the root, and where to.
func (r *resolver) outside(p place) string {
	if filepath.Clean(p.asked) == p.real {
		return "is not below the root " + r.root
	}
	return fmt.Sprintf("leads to %s, which is not below the root %s", p.real, r.root)
}

// list resolves what is to be read or written.
func (r *resolver) list(name string, asked []string) (places []place) {
	for i, path := range asked {
		field := fmt.Sprintf("%s[%d]", name, i)
		p, rule := r.at(field, path, r.root)
		if rule == "" {
			rule = r.permitted(p, strings.HasSuffix(name, "write"))
		}
		if rule != "" {
			r.refuse("CX-03", field, path, rule)
			continue
		}
		places = append(places, p)
	}
	return places
}

// permitted is the rule that an entry of read or write breaks at this level.
func (r *resolver) permitted(p place, write bool) string {
	if rule := r.touches(p.real); rule != "" {
		return rule
	}
	if write && !p.info.IsDir() {
		return "is not a folder: give the folder that it is in"
	}
	if !p.info.IsDir() && !p.info.Mode().IsRegular() {
		return "is neither a file nor a folder"
	}
	inRoot, inWork := fsx.Within(p.real, r.root), r.workDir.real != "" && fsx.Within(p.real, r.workDir.real)
	switch r.level {
	case policy.Elevated:
		return ""
	case policy.Extended:
		if write && !inRoot {
			return r.outside(p) + "; level extended writes below the root only"
		}
		if !inRoot && !r.isDependency(p.real) {
			return r.outside(p) + ", nor below a folder of contract_dependencies; it takes level elevated"
		}
		return ""
	case policy.Standard:
		if write && !inWork {
			return "is not below the working directory; level standard writes nothing else"
		}
		if !inRoot {
			return r.outside(p) + "; level standard reads nothing else"
		}
		return ""
	default:
		if write {
			return "level minimal writes nothing"
		}
		if !inWork {
			return "is not below the working directory; level minimal reads nothing else"
		}
		return ""
	}
}

// isDependency reports whether the operator lets level extended read a path. A folder
// that holds those of the system opens none of them.
func (r *resolver) isDependency(real string) bool {
	return slices.ContainsFunc(r.dependencies, func(dir string) bool {
		return fsx.Within(real, dir) && (isSystem(dir) || !isSystem(real))
	})
}

// denied resolves what is hidden. What does not exist hides nothing now, but may not
// be written either.
func (r *resolver) denied(asked []string) {
	for i, path := range asked {
		field := fmt.Sprintf("sandbox.filesystem.deny[%d]", i)
		p, rule := r.at(field, path, r.root)
		if rule != "" && p.missing() && p.real != "" {
			r.deny = append(r.deny, p)
			r.warnings = append(r.warnings, fmt.Sprintf("%s %s: nothing is there, so nothing is hidden", field, quoted(path)))
			continue
		}
		if rule != "" {
			r.refuse("CX-03", field, path, rule)
			continue
		}
		r.deny = append(r.deny, p)
		r.checkDenied(p)
	}
}

// checkDenied refuses to hide what the contract needs: one of the two is wrong.
func (r *resolver) checkDenied(p place) {
	for _, open := range slices.Concat([]place{r.workDir}, r.read, r.write) {
		if open.real != "" && (fsx.Within(open.real, p.real) || sameFile(open, p)) {
			r.refuse("CX-03", p.field, p.asked, fmt.Sprintf("hides %s %q", open.field, open.asked))
		}
	}
}

// inputs hashes the declared inputs (IV-05).
func (r *resolver) inputs(asked []string, shown view, out *Resolved) {
	room := int64(MaxInputFiles)
	for i, path := range asked {
		field := fmt.Sprintf("inputs.input_files[%d]", i)
		p, rule := r.at(field, path, r.workDir.real)
		code := "IV-05"
		switch {
		case rule != "":
			if p.real != "" && !shown.has(p.real) {
				code, rule = "IV-03", r.unseen(p)
			}
		case !shown.has(p.real):
			code, rule = "IV-03", r.unseen(p)
		case r.isDenied(p) != "":
			code, rule = "CX-03", "is hidden by "+r.isDenied(p)
		case !p.info.Mode().IsRegular():
			rule = "is not a regular file"
		}
		if rule != "" {
			r.refuse(code, field, path, rule)
			continue
		}
		file, rule := hashFile(p, &room)
		if rule != "" {
			r.refuse("IV-05", field, path, rule)
			continue
		}
		file.Path = path
		out.InputFiles = append(out.InputFiles, file)
		out.inputs = append(out.inputs, p)
		if literal := r.literal(path, r.workDir.real); fsx.Within(literal, r.root) && literal != p.real {
			r.warnings = append(r.warnings, fmt.Sprintf("%s %s is a link: the program finds it at %s",
				field, path, inside(r.root, p.real)))
		}
	}
}

// unseen says of a path that the program cannot see it.
func (r *resolver) unseen(p place) string {
	if !fsx.Within(p.real, r.root) && r.level != policy.Extended && r.level != policy.Elevated {
		return r.outside(p)
	}
	if r.level == policy.Minimal || r.level == policy.Standard {
		return fmt.Sprintf("is not among what level %s shows: %s", r.level, visible[r.level])
	}
	return "is neither below the root nor below what sandbox.filesystem.read and write name"
}

// visible says what the lower levels show.
var visible = map[policy.FilesystemLevel]string{
	policy.Minimal: "the working directory", policy.Standard: "the root",
}

// isDenied is the field that hides a place; empty if none does.
func (r *resolver) isDenied(p place) string {
	for _, d := range r.deny {
		if fsx.Within(p.real, d.real) || sameFile(p, d) {
			return d.field
		}
	}
	return ""
}

// output finds where a declared output will be.
func (r *resolver) output(field, asked string, shown view) declared {
	if scratch := filepath.Clean(asked); scratch != spec.FinalDir && fsx.Within(scratch, spec.FinalDir) {
		return declared{field: field, path: asked, target: scratch}
	}
	literal := r.literal(asked, r.workDir.real)
	// The file need not be there, nor the folder that it is in: the links of what
	// is there decide.
	p := place{field: field, asked: asked, real: filepath.Join(fsx.RealPath(filepath.Dir(literal)), filepath.Base(literal))}
	rule, code := "", "CX-05"
	switch {
	case !fsx.Within(p.real, r.root) && r.level != policy.Elevated:
		rule, code = r.outside(p), "IV-03"
	case shown.writer(p.real) == "":
		rule = fmt.Sprintf("is not below what the program may write: %s, or %s", shown.writable(), spec.FinalDir)
	case p.real == shown.writer(p.real):
		rule = "is a folder"
	case r.isDenied(p) != "":
		rule = "is hidden by " + r.isDenied(p)
	}
	if info, err := lstat(p.real); rule == "" && err == nil && info.IsDir() {
		rule = "is a folder"
	}
	if rule != "" {
		r.refuse(code, field, asked, rule)
	}
	return declared{field: field, path: asked, source: p.real, target: inside(r.root, p.real)}
}
