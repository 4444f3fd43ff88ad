package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/cmd/sandbox/root"
)

// readYAML reads a file of a CI system.
func readYAML(t *testing.T, name string, into any) string {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), name)
	return string(text)
}

type step struct {
	Uses, Run, Shell, If string
	With, Env            map[string]string
}

// TestAction: the action has what GitHub demands, its inputs reach its script as variables
// alone, and its commands are those of sandbox.
func TestAction(t *testing.T) {
	var action struct {
		Name, Description string
		Inputs            map[string]struct{ Description, Default string }
		Runs              struct {
			Using string
			Steps []step
		}
	}
	text := readYAML(t, "action.yml", &action)
	require.NotEmpty(t, action.Name)
	require.NotEmpty(t, action.Description)
	require.Equal(t, "composite", action.Runs.Using)
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`inputs\.(\w+)`).FindAllStringSubmatch(text, -1) {
		require.Contains(t, action.Inputs, m[1])
		used[m[1]] = true
	}
	for name, input := range action.Inputs {
		assert.True(t, used[name], "the input %s is not used", name)
		assert.NotEmpty(t, input.Description, name)
	}
	for _, s := range action.Runs.Steps {
		if s.Run == "" {
			assert.NotEmpty(t, s.Uses)
			continue
		}
		assert.NotContains(t, s.Run, "${{", "an input would be a part of the script")
		assert.Equal(t, "bash", s.Shell)
		for _, m := range regexp.MustCompile(`\$\{?(EVALBOX_\w+)`).FindAllStringSubmatch(s.Run, -1) {
			assert.Contains(t, s.Env, m[1])
		}
		checkCommands(t, s.Run)
	}
}

// TestExamplesOfCI: the workflows can be read, and name inputs of the action, commands and flags.
func TestExamplesOfCI(t *testing.T) {
	var action struct{ Inputs map[string]any }
	readYAML(t, "action.yml", &action)
	var github struct {
		On   any
		Jobs map[string]struct{ Steps []step }
	}
	readYAML(t, "examples/ci/github.yml", &github)
	require.NotNil(t, github.On)
	require.Len(t, github.Jobs, 1)
	found := false
	for _, s := range github.Jobs["gate"].Steps {
		if !strings.HasPrefix(s.Uses, "evalbox/evalbox@") {
			continue
		}
		found = true
		for input := range s.With {
			assert.Contains(t, action.Inputs, input)
		}
		checkCommands(t, "sandbox gate run "+s.With["arguments"]+" -- "+s.With["command"])
	}
	require.True(t, found, "the action is used")

	var gitlab map[string]struct {
		Image        string
		Script       []string
		BeforeScript []string `yaml:"before_script"`
		Artifacts    struct {
			When    string
			Paths   []string
			Reports map[string]string
		}
	}
	readYAML(t, "examples/ci/gitlab-ci.yml", &gitlab)
	job := gitlab["gate"]
	require.NotEmpty(t, job.Image)
	script := strings.Join(append(job.BeforeScript, job.Script...), "\n")
	checkCommands(t, script)
	assert.Equal(t, "always", job.Artifacts.When)
	assert.Contains(t, script, "--output "+job.Artifacts.Paths[0])
	assert.Contains(t, script, "--junit "+job.Artifacts.Reports["junit"])
}

// TestGuideOfCI: the guide shows the workflows as they are.
func TestGuideOfCI(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/ci.md")
	require.NoError(t, err)
	for _, name := range []string{"github.yml", "gitlab-ci.yml"} {
		text, err := os.ReadFile("../../examples/ci/" + name)
		require.NoError(t, err)
		assert.Contains(t, string(guide), "```yaml\n"+string(text)+"```\n", name)
	}
}

// checkCommands checks that what follows "sandbox" in a script is a command, and that it has the
// flags.
func checkCommands(t *testing.T, script string) {
	t.Helper()
	calls := regexp.MustCompile(`(?m)(?:^|\s)sandbox ((?:[a-z]+ )+)(.*)`).FindAllStringSubmatch(script, -1)
	for _, call := range calls {
		tree := root.New(cli.New(cli.Streams{}))
		cmd, _, err := tree.Find(strings.Fields(call[1]))
		require.NoError(t, err, call[0])
		require.NotEqual(t, tree, cmd, call[0])
		flags, _, _ := strings.Cut(call[2], " -- ")
		for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(flags, -1) {
			assert.True(t, hasFlag(cmd, flag[1]), "%s has no --%s", cmd.CommandPath(), flag[1])
		}
	}
	require.NotEmpty(t, calls, script)
	for _, list := range regexp.MustCompile(`flags\+?=\((.*)\)`).FindAllStringSubmatch(script, -1) {
		tree := root.New(cli.New(cli.Streams{}))
		cmd, _, err := tree.Find([]string{"gate", "run"})
		require.NoError(t, err)
		for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(list[1], -1) {
			assert.True(t, hasFlag(cmd, flag[1]), "gate run has no --%s", flag[1])
		}
	}
}

func hasFlag(cmd *cobra.Command, name string) bool {
	return cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil
}
