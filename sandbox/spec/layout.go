package spec

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/policy"
)

// Layout is the mount table of a request: the files of the host that its program sees,
// their paths inside the container, and the paths that are hidden. It is made once, by
// [NewLayout] from the text of the request alone, or by package hostpath with links
// resolved and masks expanded by a look at the disk.
type Layout struct {
	// Script and Final are host paths; see [Request].
	Script, Final string
	// Claim is the input, if it is a volume of a cluster. Then there is no entry for it.
	Claim *Claim
	// Entries are the input, the mounts and the trees, each after all that it lies in.
	Entries []Entry
	// Masks are hidden paths, canaries in an entry included. They have no role yet.
	Masks []Mask
	// Canaries are those of [Observe].
	Canaries []Canary
}

// Entry shows one file or directory of the host.
type Entry struct {
	// Role is [RoleInput], [RoleMount] or [RoleTree].
	Role string
	// Source is a host path; empty for a tree that begins empty.
	Source string
	// Target is a path inside the container.
	Target string
	// Dir says that the source is a directory. It is unknown for the mounts of a request
	// that was not resolved.
	Dir bool
	// Exclude lists the excluded paths of a tree as the request names them.
	Exclude []string
	// Absent are masked paths of a tree that do not exist, relative to the target. The
	// program must not create them.
	Absent []string
}

// Canary is a path at which an attempt to open it is observed.
type Canary struct {
	Target string
	Dir    bool
}

// Text returns the canary in the form of a mask of a request.
func (c Canary) Text() string { return Mask{Target: c.Target, Dir: c.Dir}.Text() }

// NewLayout makes the mount table of a request. The error joins every target that breaks
// a rule, as a [*policy.FieldError]; nothing else of the request is checked.
func NewLayout(req Request) (Layout, error) {
	l := Layout{Script: req.Script, Final: req.Final}
	var claimErr error
	if IsClaim(req.Input) {
		l.Claim, claimErr = ParseClaim(req.Input)
	} else if req.Input != "" {
		l.Entries = append(l.Entries, Entry{Role: RoleInput, Source: req.Input, Target: InputDir, Dir: true})
	}
	for _, m := range req.Mounts {
		l.Entries = append(l.Entries, Entry{Role: RoleMount, Source: m.Source, Target: m.Target})
	}
	for _, t := range req.Trees {
		l.Entries = append(l.Entries, Entry{Role: RoleTree, Source: t.Source, Target: t.Target, Dir: true, Exclude: t.Exclude})
	}
	err := l.checkTargets()
	slices.SortStableFunc(l.Entries, func(a, b Entry) int { return ByDepth(a.Target, b.Target) })
	for _, text := range req.Masks {
		l.Masks = append(l.Masks, Mask{Target: strings.TrimSuffix(text, "/"), Dir: strings.HasSuffix(text, "/")})
	}
	l.addCanaries(req)
	return l, errors.Join(claimErr, err, l.checkClaim())
}

// dirNames are names that usually belong to directories.
var dirNames = []string{".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker"}

// addCanaries adds the canaries of a request, and masks for those that lie in an entry. It
// ignores canaries in the input of a request without input.
func (l *Layout) addCanaries(req Request) {
	if req.Observe == nil {
		return
	}
	for _, text := range req.Observe.Canaries {
		if rest, home := strings.CutPrefix(text, "~/"); home {
			text = strings.TrimSuffix(cmp.Or(req.Env["HOME"], TmpDir), "/") + "/" + rest
		}
		target := strings.TrimSuffix(text, "/")
		c := Canary{target, target != text || slices.Contains(dirNames, path.Base(target))}
		if l.Claim == nil && Below(target, InputDir) && !l.Contains(target) {
			continue
		}
		l.Canaries = append(l.Canaries, c)
		if l.Contains(target) && !slices.ContainsFunc(l.Masks, func(m Mask) bool { return m.Target == target }) {
			l.Masks = append(l.Masks, Mask{Target: target, Dir: c.Dir})
		}
	}
}

// ScriptName returns the script's name in the working directory; empty if there is none.
func (l Layout) ScriptName() string {
	if l.Script == "" {
		return ""
	}
	return filepath.Base(l.Script)
}

// Input returns the host path of the input; empty if there is none.
func (l Layout) Input() string {
	for _, e := range l.Entries {
		if e.Role == RoleInput {
			return e.Source
		}
	}
	return ""
}

// Lookup returns the entry that shows a path of the container, and the path relative to
// its target.
func (l Layout) Lookup(inside string) (e Entry, rel string, ok bool) {
	for _, one := range l.Entries {
		if Within(inside, one.Target) && len(one.Target) > len(e.Target) {
			e, ok = one, true
		}
	}
	return e, Rel(inside, e.Target), ok
}

// Shows reports whether the entry with this target, and no other one that lies in it,
// shows a path of the container.
func (l Layout) Shows(target, inside string) bool {
	e, _, ok := l.Lookup(inside)
	return ok && e.Target == target
}

// Contains reports whether a path of the container lies strictly below an entry.
func (l Layout) Contains(inside string) bool {
	_, rel, ok := l.Lookup(inside)
	return ok && rel != "."
}

// checkClaim refuses paths in an input that only the cluster can see.
func (l Layout) checkClaim() error {
	if l.Claim == nil {
		return nil
	}
	var errs []error
	refuse := func(field, target string) {
		if Within(target, InputDir) {
			errs = append(errs, &policy.FieldError{Field: field, Value: fmt.Sprintf("%.200q", target), Rule: "lies in the input, which is a volume of the cluster"})
		}
	}
	for _, e := range l.Entries {
		refuse(e.Role, e.Target)
	}
	for _, m := range l.Masks {
		refuse("mask", m.Target)
	}
	for _, c := range l.Canaries {
		refuse("canary", c.Target)
	}
	return errors.Join(errs...)
}

func (l Layout) checkTargets() error {
	var errs []error
	seen := map[string]bool{}
	for _, e := range l.Entries {
		if e.Role == RoleInput {
			continue
		}
		errs = append(errs, checkTarget(e.Role, e.Target, l.ScriptName()))
		if seen[e.Target] {
			errs = append(errs, &policy.FieldError{Field: e.Role, Value: fmt.Sprintf("%.200q", e.Target), Rule: "two mounts have this target"})
		}
		seen[e.Target] = true
	}
	return errors.Join(errs...)
}

// checkTarget permits targets in the directories that no image uses.
func checkTarget(field, target, script string) error {
	refuse := func(rule string) error {
		return &policy.FieldError{Field: field, Value: fmt.Sprintf("%.200q", target), Rule: rule}
	}
	if err := CheckPath(field, target); err != nil {
		return err
	}
	if Within(target, RepoDir) || Below(target, HostDir) {
		return nil
	}
	rest, inWork := strings.CutPrefix(target, WorkDir+"/")
	first, deeper, _ := strings.Cut(rest, "/")
	switch {
	case !inWork:
		return refuse("must be " + RepoDir + ", or lie in " + RepoDir + ", " + HostDir + " or " + WorkDir)
	case first == "final":
		return refuse("lies in " + FinalDir + ", which is the program's")
	case first == "input" && deeper == "":
		return refuse("is where the input is")
	case first == script:
		return refuse("is where the program is")
	}
	return nil
}
