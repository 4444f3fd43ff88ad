package images

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"
)

var (
	namePattern    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`) })
	suitePattern   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9-]*$`) })
	packagePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`) })
	excludePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[/*][^\s]+$`) })
	filePattern    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`) })
)

const nameRule = "must be lower-case words joined by single dashes, at most 64 characters"

// IsName reports whether a text can be the name of an image in a catalog, or of an own image.
func IsName(name string) bool { return len(name) <= 64 && namePattern().MatchString(name) }

// CheckName returns an error that names the rule for a text that is not the name of an image,
// see [IsName].
func CheckName(name string) error {
	if !IsName(name) {
		return fmt.Errorf("name %.100q: %s", name, nameRule)
	}
	return nil
}

// CheckPackages returns an error for each text that cannot be the name of a Debian package.
func CheckPackages(names []string) error {
	var errs []error
	checkPackages("packages", names, func(path, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
	})
	return errors.Join(errs...)
}

// variants are the package sets of mmdebstrap that hold a usable system.
var variants = []string{"essential", "apt", "minbase", "buildd", "standard"}

// validate reports every problem of a catalog.
func validate(source string, doc document) error {
	var errs []error
	problem := func(path, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s: %s", source, path, fmt.Sprintf(format, args...)))
	}
	if len(doc.Images) == 0 {
		problem("images", "must name at least one image")
	}
	if _, ok := doc.Images[doc.Default]; !ok {
		problem("default", "must name an entry of images, have %q", doc.Default)
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Images)) {
		at := "images." + name
		if !IsName(name) {
			problem(at, "name "+nameRule)
		}
		checkEntry(at, doc.Images[name], problem)
	}
	return errors.Join(errs...)
}

// checkEntry reports every problem of one entry at the given path.
func checkEntry(at string, e Entry, problem func(path, format string, args ...any)) {
	if e.Description == "" {
		problem(at+".description", "must not be empty")
	}
	if !filePattern().MatchString(e.Dockerfile) {
		problem(at+".dockerfile", "must be a plain file name, have %q", e.Dockerfile)
	}
	if !sha256Pattern().MatchString(e.DockerfileSHA256) {
		problem(at+".dockerfile_sha256", "must be 64 lower-case hexadecimal digits, have %q", e.DockerfileSHA256)
	}
	checkRequirements(at, e, problem)
	if (e.Base.Bootstrap == nil) == (e.Base.Reference == "") {
		problem(at+".base", "must have exactly one of bootstrap and reference")
	}
	if e.Base.Reference != "" {
		checkPinned(at+".base.reference", e.Base.Reference, problem)
		if !e.Epoch.IsZero() && e.Epoch.Unix() <= 0 {
			problem(at+".epoch", "must be a time such as 2026-01-01T00:00:00Z")
		}
	} else if !e.Epoch.IsZero() {
		problem(at+".epoch", "is only for a base that is a reference; a bootstrap has its own")
	}
	if e.Base.Bootstrap != nil {
		checkBootstrap(at+".base.bootstrap", *e.Base.Bootstrap, problem)
	}
}

// checkRequirements reports requirements without a pin, and a pin without requirements.
func checkRequirements(at string, e Entry, problem func(path, format string, args ...any)) {
	if e.Requirements == "" {
		if e.RequirementsSHA256 != "" {
			problem(at+".requirements_sha256", "there are no requirements to pin")
		}
		return
	}
	if !filePattern().MatchString(e.Requirements) || e.Requirements == e.Dockerfile {
		problem(at+".requirements", "must be a plain file name of its own, have %q", e.Requirements)
	}
	if !sha256Pattern().MatchString(e.RequirementsSHA256) {
		problem(at+".requirements_sha256", "must be 64 lower-case hexadecimal digits, have %q", e.RequirementsSHA256)
	}
}

// checkPinned reports a reference that could mean another image tomorrow.
func checkPinned(at, ref string, problem func(path, format string, args ...any)) {
	switch _, _, err := ParsePinned(ref); {
	case errors.Is(err, ErrNotPinned):
		problem(at, "must be pinned by digest (name:tag@sha256:…), have %q", ref)
	case err != nil:
		problem(at, "%q is not an image reference: %v", ref, err)
	}
}

// checkBootstrap reports every problem of a bootstrap recipe.
func checkBootstrap(at string, b Bootstrap, problem func(path, format string, args ...any)) {
	if !suitePattern().MatchString(b.Suite) {
		problem(at+".suite", "must be the code name of a release, have %q", b.Suite)
	}
	if !slices.Contains(variants, b.Variant) {
		problem(at+".variant", "must be one of %v, have %q", variants, b.Variant)
	}
	if b.Epoch.Unix() <= 0 {
		problem(at+".epoch", "must be a time such as 2026-01-01T00:00:00Z")
	}
	if len(b.Packages) == 0 {
		problem(at+".packages", "must name at least one package")
	}
	checkPackages(at+".packages", b.Packages, problem)
	checkPackages(at+".stand_ins", b.StandIns, problem)
	for i, p := range b.Exclude {
		if !excludePattern().MatchString(p) {
			problem(fmt.Sprintf("%s.exclude[%d]", at, i), "%q must start with / or * and hold no white space", p)
		}
	}
}

// checkPackages reports texts that cannot be the name of a Debian package.
func checkPackages(at string, names []string, problem func(path, format string, args ...any)) {
	for i, p := range names {
		if !packagePattern().MatchString(p) {
			problem(fmt.Sprintf("%s[%d]", at, i), "%q is not a package name", p)
		}
	}
}
