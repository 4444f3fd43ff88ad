package plan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestAliases(t *testing.T) {
	alias := func(name, target string) spec.Alias { return spec.Alias{Name: name, Target: target} }
	for name, test := range map[string]struct {
		asked   []spec.Alias
		aliases []spec.Alias
		mounts  []string
		tmpfs   []spec.Tmpfs
		refused string
	}{
		"none": {},
		"in the working directory": {
			asked:   []spec.Alias{alias("submission.csv", "final/submission.csv"), alias("data", "input"), alias("a/working", "final")},
			aliases: []spec.Alias{alias("/work/data", "/work/input"), alias("/work/submission.csv", "/work/final/submission.csv"), alias("/work/a/working", "/work/final")},
		},
		"absolute": {
			asked:   []spec.Alias{alias("/kaggle/input/titanic", "input"), alias("/kaggle/working", "."), alias("/home/data", "input/x")},
			aliases: []spec.Alias{alias("/home/data", "/work/input/x"), alias("/kaggle/working", "/work")},
			mounts:  []string{"/kaggle/input/titanic"},
			tmpfs: []spec.Tmpfs{{Target: "/home", SizeBytes: linkDirBytes + 2*pageBytes, Inodes: 2}, {Target: "/kaggle", SizeBytes: linkDirBytes + 3*pageBytes, Inodes: 3},
				{Target: "/kaggle/input", SizeBytes: linkDirBytes + 2*pageBytes, Inodes: 2}},
		},
		"links beside a mount": {
			asked:   []spec.Alias{alias("/k/input/train.csv", "input/train.csv"), alias("/k/input/slug", "input"), alias("/k/input/deep/x", "input/x")},
			aliases: []spec.Alias{alias("/k/input/train.csv", "/work/input/train.csv"), alias("/k/input/deep/x", "/work/input/x")},
			mounts:  []string{"/k/input/slug"},
			tmpfs:   []spec.Tmpfs{{Target: "/k/input", SizeBytes: linkDirBytes + 5*pageBytes, Inodes: 5}},
		},
		"links above and beside a deep mount": {
			asked:   []spec.Alias{alias("/a/b/c/d/in", "input"), alias("/a/b/y", "final"), alias("/a/b/c/z", "final"), alias("/a/b/e/z", "final")},
			aliases: []spec.Alias{alias("/a/b/y", "/work/final"), alias("/a/b/c/z", "/work/final"), alias("/a/b/e/z", "/work/final")},
			mounts:  []string{"/a/b/c/d/in"},
			tmpfs: []spec.Tmpfs{{Target: "/a/b", SizeBytes: linkDirBytes + 5*pageBytes, Inodes: 5}, {Target: "/a/b/c", SizeBytes: linkDirBytes + 3*pageBytes, Inodes: 3},
				{Target: "/a/b/c/d", SizeBytes: linkDirBytes + 2*pageBytes, Inodes: 2}},
		},
		"no target":                      {asked: []spec.Alias{alias("x", "")}, refused: "the target must be"},
		"another target":                 {asked: []spec.Alias{alias("x", "inputs")}, refused: "the target must be"},
		"a target above":                 {asked: []spec.Alias{alias("x", "input/../..")}, refused: "the target must be"},
		"an absolute target":             {asked: []spec.Alias{alias("x", "/etc")}, refused: "the target must be"},
		"a loop":                         {asked: []spec.Alias{alias("x", ".")}, refused: "the target must be"},
		"a name above":                   {asked: []spec.Alias{alias("../x", "input")}, refused: "the name must be a clean path"},
		"a name that is not clean":       {asked: []spec.Alias{alias("a//b", "input")}, refused: "the name must be a clean path"},
		"a control character":            {asked: []spec.Alias{alias("a\x1b", "input")}, refused: "the name must be a clean path"},
		"no name":                        {asked: []spec.Alias{alias("", "input")}, refused: "the name must be a clean path"},
		"the script":                     {asked: []spec.Alias{alias("main.py", "input/x")}, refused: "is, holds or lies in /work/main.py"},
		"the input":                      {asked: []spec.Alias{alias("input", "final")}, refused: "is, holds or lies in /work/input"},
		"in the output":                  {asked: []spec.Alias{alias("final/x", "input")}, refused: "is, holds or lies in /work/final"},
		"above a mount":                  {asked: []spec.Alias{alias("lib", "input")}, refused: "is, holds or lies in /work/lib/one"},
		"twice":                          {asked: []spec.Alias{alias("x", "input"), alias("x", "final")}, refused: "is, holds or lies in the alias /work/x"},
		"one in another":                 {asked: []spec.Alias{alias("x", "input"), alias("x/y", "final")}, refused: "is, holds or lies in the alias /work/x"},
		"without a directory":            {asked: []spec.Alias{alias("/data", "input")}, refused: "such as /data/NAME"},
		"a directory of the image":       {asked: []spec.Alias{alias("/usr/share/data", "input")}, refused: "which programs use"},
		"all of /opt":                    {asked: []spec.Alias{alias("/opt/data", "input")}, refused: "which programs use"},
		"in /tmp":                        {asked: []spec.Alias{alias("/tmp/data", "input")}, refused: "which programs use"},
		"in the place of the repository": {asked: []spec.Alias{alias("/repo/x", "input")}, refused: "which programs use"},
	} {
		t.Run(name, func(t *testing.T) {
			req := spec.Request{Script: "/srv/main.py", Mounts: []spec.Mount{{Source: "/srv/one", Target: "/work/lib/one"}}, Aliases: test.asked}
			layout, err := spec.NewLayout(req)
			require.NoError(t, err)
			plan, err := planAliases(req, layout)
			if test.refused != "" {
				var refused *policy.FieldError
				require.ErrorAs(t, err, &refused)
				require.Equal(t, "alias", refused.Field)
				require.ErrorContains(t, err, test.refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.aliases, plan.links)
			require.Equal(t, test.tmpfs, plan.dirs)
			var mounts []string
			for _, b := range plan.binds {
				require.Equal(t, spec.Bind{Role: spec.RoleInput, Target: b.Target, ReadOnly: true}, b)
				mounts = append(mounts, b.Target)
			}
			require.Equal(t, test.mounts, mounts)
		})
	}
	var many []spec.Alias
	for i := range spec.MaxAliases + 1 {
		many = append(many, alias(fmt.Sprint("x", i), "input"))
	}
	_, err := planAliases(spec.Request{Aliases: many}, spec.Layout{})
	require.ErrorContains(t, err, "must be at most 512")
}

// TestAliasesShowNothingHidden: a second mount of the input would show what the first one hides.
func TestAliasesShowNothingHidden(t *testing.T) {
	for name, req := range map[string]spec.Request{
		"a mask":   {Input: "/srv/data", Masks: []string{"/work/input/secret"}},
		"a mount":  {Input: "/srv/data", Mounts: []spec.Mount{{Source: "/srv/one", Target: "/work/input/one"}}},
		"a volume": {Input: "pvc://data/x"},
		"a canary": {Input: "/srv/data", Observe: &spec.Observe{Canaries: []string{"/work/input/secret"}}},
	} {
		req.Aliases = []spec.Alias{{Name: "/data/all", Target: "input"}}
		layout, err := spec.NewLayout(req)
		require.NoError(t, err, name)
		plan, err := planAliases(req, layout)
		require.NoError(t, err, name)
		require.Empty(t, plan.binds, name)
		require.Len(t, plan.links, 1, name)
	}
}
