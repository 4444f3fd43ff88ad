package images

import "slices"

// A PackageDiff says how one list of packages differs from another.
type PackageDiff struct {
	Added   []Package       `json:"added"`
	Removed []Package       `json:"removed"`
	Changed []PackageChange `json:"changed"`
}

// A PackageChange is a package that has another version.
type PackageChange struct {
	Package

	// NewVersion is the version in the later list.
	NewVersion string `json:"new_version"`
}

// DiffPackages compares two lists. The result is sorted, and its lists are never
// nil.
func DiffPackages(before, after Packages) PackageDiff {
	d := PackageDiff{Added: []Package{}, Removed: []Package{}, Changed: []PackageChange{}}
	gone, come := without(before, after), without(after, before)
	for len(gone) > 0 && len(come) > 0 {
		old, next := gone[0], come[0]
		switch c := comparePackages(unversioned(old), unversioned(next)); {
		case c < 0:
			d.Removed, gone = append(d.Removed, old), gone[1:]
		case c > 0:
			d.Added, come = append(d.Added, next), come[1:]
		default:
			d.Changed = append(d.Changed, PackageChange{old, next.Version})
			gone, come = gone[1:], come[1:]
		}
	}
	d.Removed, d.Added = append(d.Removed, gone...), append(d.Added, come...)
	return d
}

// without returns what of a sorted list another one does not have.
func without(list, other Packages) Packages {
	var rest Packages
	for _, p := range list {
		if _, found := slices.BinarySearchFunc(other, p, comparePackages); !found {
			rest = append(rest, p)
		}
	}
	return rest
}

func unversioned(p Package) Package {
	p.Version = ""
	return p
}

// Empty says that the lists are the same.
func (d PackageDiff) Empty() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// Lines tell the difference, one package each: "+ " for added, "- " for removed,
// "~ " for another version.
func (d PackageDiff) Lines() []string {
	var lines []string
	for _, p := range d.Added {
		lines = append(lines, "+ "+p.String())
	}
	for _, p := range d.Removed {
		lines = append(lines, "- "+p.String())
	}
	for _, p := range d.Changed {
		lines = append(lines, "~ "+p.String()+" -> "+p.NewVersion)
	}
	return lines
}
