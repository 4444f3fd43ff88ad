package tree

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGitGuard(t *testing.T) {
	entries := func(names ...string) (list []Entry) {
		for _, name := range names {
			list = append(list, Entry{Path: name, Kind: KindFile})
		}
		return list
	}
	onHost := []string{"bare.git/HEAD", "half/config"}
	there := func(name string) bool { return slices.Contains(onHost, name) }
	changes := entries("made/HEAD", "made/config", "both/Hooks/x", "both/head")
	for source, c := range map[string]struct{ refused, fine []string }{
		"/home/ada/project": {
			refused: []string{".git", ".git/config", ".git/hooks/post-checkout", "sub/.GIT/config", "sub/.git", ".gi\u200ct/x", ".git./x", ".git ", "GIT~1/config",
				".git::$INDEX_ALLOCATION/config", "bare.git/config", "bare.git/hooks", "bare.git/hooks/pre-push", "bare.git/commondir",
				"made/HEAD", "made/config", "half/HEAD", "both/Hooks/x"},
			fine: []string{".gitignore", ".github/workflows/x.yaml", ".gitmodules", "config", "hooks/x", "HEAD", "bare.git/description", "bare.git/refs/x", "git/config"},
		},
		"/home/ada/project/.git":           {refused: []string{"x", "config"}},
		"/home/ada/project/.Git/modules/x": {refused: []string{"HEAD"}},
	} {
		guard := newGitGuard(source, there, changes)
		for _, name := range c.refused {
			require.NotEmpty(t, guard.refuse(Entry{Path: name}), "%s in %s", name, source)
		}
		for _, name := range c.fine {
			require.Empty(t, guard.refuse(Entry{Path: name}), "%s in %s", name, source)
		}
	}
}
