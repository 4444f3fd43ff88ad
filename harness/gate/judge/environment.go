package judge

import (
	"cmp"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// environment compares what the gates ran in with what was sealed (RT-05, RT-08).
func (j *judgement) environment() {
	m, env := j.in.Manifest, j.in.Env
	if env.Schema != evidence.EnvSnapshotV1 {
		return // told with the files
	}
	if m.Toolchain.ImageID != "" && env.ImageID != m.Toolchain.ImageID {
		j.against(evidence.ReasonEnvironment, 0, m.Toolchain.Image,
			"The gates ran in the image %q, and the wish was sealed with %q.", env.ImageID, m.Toolchain.ImageID)
	}
	if env.GitCommit != m.Repo.Commit {
		j.against(evidence.ReasonEnvironment, 0, "repository", "The gates ran at the commit %q, and the run manifest says %q.", env.GitCommit, m.Repo.Commit)
	}
	if env.Workspace == "" {
		j.against(evidence.ReasonIncomplete, 0, evidence.EnvSnapshotFile, "%s has no hash of the workspace that the gates got.", evidence.EnvSnapshotFile)
	}
	j.python()
	j.mounts()
	if m.Mode.ClaimGrade {
		j.pinned()
	}
}

// pythons are the names under which a snapshot has the version of Python.
var pythons = []string{"python", "python3"}

// python compares the pinned version with the one that the image has.
func (j *judgement) python() {
	pinned := j.in.Manifest.Toolchain.Python
	if pinned == "" {
		return
	}
	found := ""
	for _, name := range pythons {
		found = cmp.Or(found, j.in.Env.LanguageRuntimes[name])
	}
	switch {
	case found == "" && j.in.Manifest.Mode.ClaimGrade:
		j.against(evidence.ReasonUnpinned, 0, "python", "The wish pins Python %s, and %s does not say which one the gates had.", pinned, evidence.EnvSnapshotFile)
	case !strings.HasPrefix(found+".", pinned+"."): // "3.11" pins any 3.11.x, not 3.110
		j.against(evidence.ReasonEnvironment, 0, "python", "The wish pins Python %s, and the gates had %q.", pinned, found)
	}
}

// mounts compares the folders of tools with what was sealed.
func (j *judgement) mounts() {
	there := map[string]string{}
	for _, mount := range j.in.Env.Toolchain {
		there[mount.Target] = mount.Hash
	}
	sealed := map[string]bool{}
	for _, mount := range j.in.Manifest.Toolchain.Mounts {
		sealed[mount.Target] = true
		switch hash, is := there[mount.Target]; {
		case mount.Hash == "" && j.in.Manifest.Mode.ClaimGrade:
			j.against(evidence.ReasonUnpinned, 0, mount.Target, "The toolchain at %s is not pinned by a hash.", mount.Target)
		case !is:
			j.against(evidence.ReasonEnvironment, 0, mount.Target, "The gates did not have the toolchain at %s that was sealed.", mount.Target)
		case hash != mount.Hash:
			j.against(evidence.ReasonEnvironment, 0, mount.Target, "The toolchain at %s has the hash %q, and %q was sealed.", mount.Target, hash, mount.Hash)
		}
	}
	for _, mount := range j.in.Env.Toolchain {
		if !sealed[mount.Target] {
			j.against(evidence.ReasonEnvironment, 0, mount.Target, "The gates had a toolchain at %s that was not sealed.", mount.Target)
		}
	}
}

// pinned looks at what a claim needs. The image's ID pins everything in it, so a Python
// need not be pinned besides.
func (j *judgement) pinned() {
	m, env := j.in.Manifest, j.in.Env
	switch {
	case m.Toolchain.ImageID == "":
		j.against(evidence.ReasonUnpinned, 0, m.Toolchain.Image, "The wish was sealed without the ID of the image %q.", m.Toolchain.Image)
	case !m.Toolchain.Locked:
		j.against(evidence.ReasonUnpinned, 0, m.Toolchain.Image, "The image %q was not the locked one when the wish was sealed.", m.Toolchain.Image)
	case !env.ImageLocked:
		j.against(evidence.ReasonUnpinned, 0, m.Toolchain.Image, "The image that the gates ran in was not the locked one.")
	}
}
