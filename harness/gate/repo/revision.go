package repo

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// A RevisionError is a revision that a repository does not have, or that cannot be meant.
type RevisionError struct {
	Revision, Rule string
}

func (e *RevisionError) Error() string { return fmt.Sprintf("revision %.200q: %s", e.Revision, e.Rule) }

const (
	shortHash = 4
	fullHash  = 40
)

var (
	revisionForm = regexp.MustCompile(`^([^\x00-\x20~^:?*\[\\\x7f]{1,255})((?:~[0-9]{0,6}|\^[0-9]{0,3})*)$`)
	revisionStep = regexp.MustCompile(`[~^][0-9]*`)
	hexDigits    = regexp.MustCompile(`^[0-9a-fA-F]{4,40}$`)
)

// resolve finds a commit by a branch, a tag, HEAD or a hash, with ~N and ^N behind it.
// The rules are git's; those of the library pass over what it does not know, such as
// main@{1}, and prefer the beginning of a hash to a branch of that name.
func (r *repository) resolve(revision string) (*object.Commit, error) {
	refuse := func(format string, args ...any) (*object.Commit, error) {
		return nil, &RevisionError{revision, fmt.Sprintf(format, args...)}
	}
	m := revisionForm.FindStringSubmatch(revision)
	if m == nil || strings.Contains(m[1], "@{") || strings.Contains(m[1], "..") || strings.HasPrefix(m[1], "-") {
		return refuse("must be a branch, a tag or the hash of a commit, with ~N or ^N behind it")
	}
	h, rule, err := r.named(m[1])
	if err != nil {
		return nil, err
	}
	if rule != "" {
		return refuse("%s", rule)
	}
	commit, rule, err := r.commit(h)
	if err != nil || rule != "" {
		return nil, errors.Join(err, ruleError(revision, rule))
	}
	left := maxSteps
	for _, step := range revisionStep.FindAllString(m[2], -1) {
		n := 1
		if len(step) > 1 {
			n, _ = strconv.Atoi(step[1:]) // a few digits
		}
		parents := []int{n - 1} // ^N is the Nth parent
		if step[0] == '~' {
			parents = make([]int, n)
		} else if n == 0 {
			parents = nil
		}
		for _, parent := range parents {
			if left--; left < 0 {
				return refuse("is more than %d commits away", maxSteps)
			}
			if parent >= len(commit.ParentHashes) {
				if r.shallow() {
					return refuse("%s has no such parent here, for the clone is shallow: fetch more of its history", commit.Hash)
				}
				return refuse("%s has no such parent", commit.Hash)
			}
			h := commit.ParentHashes[parent]
			if commit, err = object.GetCommit(r.store, h); err != nil {
				if errors.Is(err, plumbing.ErrObjectNotFound) && r.shallow() {
					return refuse("%s is not here, for the clone is shallow: fetch more of its history", h)
				}
				return nil, fmt.Errorf("commit %s: %w", h, err)
			}
		}
	}
	return commit, nil
}

func ruleError(revision, rule string) error {
	if rule == "" {
		return nil
	}
	return &RevisionError{revision, rule}
}

// named is what a name stands for, or the rule that it breaks.
func (r *repository) named(name string) (h plumbing.Hash, rule string, err error) {
	if len(name) == fullHash && hexDigits.MatchString(name) {
		return plumbing.NewHash(strings.ToLower(name)), "", nil
	}
	if name == "@" {
		name = plumbing.HEAD.String()
	}
	for _, format := range plumbing.RefRevParseRules {
		ref, err := storer.ResolveReference(r.store, plumbing.ReferenceName(fmt.Sprintf(format, name)))
		if err == nil {
			return ref.Hash(), "", nil
		}
		if !errors.Is(err, plumbing.ErrReferenceNotFound) && !errors.Is(err, storer.ErrMaxResolveRecursion) {
			continue // no name of a file, such as one below a branch
		}
	}
	if name == plumbing.HEAD.String() {
		return h, "there is no commit yet", nil
	}
	if !hexDigits.MatchString(name) {
		return h, "is no branch, tag or commit of this repository", nil
	}
	return r.short(strings.ToLower(name))
}

// short completes the beginning of a hash.
func (r *repository) short(name string) (found plumbing.Hash, rule string, err error) {
	whole, err := hex.DecodeString(name[:len(name)&^1])
	if err != nil {
		return found, "", err
	}
	all, err := r.store.HashesWithPrefix(whole)
	if err != nil {
		return found, "", err
	}
	n := 0
	seen := map[plumbing.Hash]bool{}
	for _, h := range all {
		if !strings.HasPrefix(h.String(), name) || seen[h] {
			continue
		}
		seen[h] = true
		if _, rule, err := r.commit(h); err == nil && rule == "" {
			found, n = h, n+1
		}
	}
	switch n {
	case 0:
		return found, "is no branch, tag or commit of this repository", nil
	case 1:
		return found, "", nil
	}
	return found, fmt.Sprintf("is the beginning of %d commits; give more of the hash", n), nil
}

// commit is the commit that an object is, or that a tag stands for.
func (r *repository) commit(h plumbing.Hash) (*object.Commit, string, error) {
	for range maxTags {
		o, err := r.store.EncodedObject(plumbing.AnyObject, h)
		if errors.Is(err, plumbing.ErrObjectNotFound) {
			return nil, fmt.Sprintf("the object %s is not in this repository", h), nil
		}
		if err != nil {
			return nil, "", err
		}
		switch o.Type() {
		case plumbing.CommitObject:
			c, err := object.DecodeCommit(r.store, o)
			return c, "", err
		case plumbing.TagObject:
			tag, err := object.DecodeTag(r.store, o)
			if err != nil {
				return nil, "", err
			}
			h = tag.Target
		default:
			return nil, fmt.Sprintf("is a %s, not a commit", o.Type()), nil
		}
	}
	return nil, fmt.Sprintf("is a tag of a tag, more than %d times", maxTags), nil
}
