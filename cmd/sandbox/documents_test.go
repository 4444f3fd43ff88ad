package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/cmd/sandbox/root"
)

// TestDocumentedCommands: every command line of sandbox in a document has a command that exists, flags that it
// has with values that they take, and arguments that it takes.
func TestDocumentedCommands(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/guides/*.md", "examples/*/README.md", "clients/*/README.md"} {
		found, err := filepath.Glob("../../" + pattern)
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	checked := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, words := range documentedCommands(string(text)) {
			checked++
			tree := root.New(cli.New(cli.Streams{Out: io.Discard, Err: io.Discard}))
			cmd, rest, err := tree.Find(words)
			if !assert.NoError(t, err, "%s: sandbox %q", page, words) {
				continue
			}
			if words[0] == "help" {
				tree.SetArgs(words)
				tree.SetOut(io.Discard)
				assert.NoError(t, tree.Execute(), "%s: sandbox %q", page, words)
				continue
			}
			if !assert.NoError(t, cmd.ParseFlags(rest), "%s: sandbox %q", page, words) || slices.Contains(rest, "--help") {
				continue
			}
			assert.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%s: sandbox %q", page, words)
		}
	}
	require.Greater(t, checked, 140)
}

// TestTopicsAreNotCommands: `sandbox help NAME` explains the command of this name, if there is one.
func TestTopicsAreNotCommands(t *testing.T) {
	var out bytes.Buffer
	require.Zero(t, Run(t.Context(), []string{"help", "topics"}, cli.Streams{Out: &out, Err: io.Discard}))
	found := regexp.MustCompile(`(?m)^  (\S+)  `).FindAllStringSubmatch(out.String(), -1)
	require.Greater(t, len(found), 30)
	for _, topic := range found {
		_, rest, err := root.New(cli.New(cli.Streams{})).Find(topic[1:])
		require.NoError(t, err)
		assert.Equal(t, topic[1:], rest, "no command")
	}
}

// documentedCommands are the arguments of each command sandbox in the blocks of a page that a shell reads.
func documentedCommands(page string) [][]string {
	var commands [][]string
	shell, block := false, false
	line := ""
	for part := range strings.SplitSeq(page, "\n") {
		if info, ok := strings.CutPrefix(strings.TrimSpace(part), "```"); ok {
			block = !block
			shell = block && slices.Contains([]string{"sh", "console", "bash"}, info)
			continue
		}
		if !shell {
			continue
		}
		if text, more := strings.CutSuffix(part, `\`); more {
			line += text
			continue
		}
		for _, words := range simpleCommands(strings.TrimPrefix(strings.TrimSpace(line+part), "$ ")) {
			for len(words) > 0 && (strings.Contains(words[0], "=") || words[0] == "sudo") {
				words = words[1:]
			}
			if len(words) > 1 && (words[0] == "sandbox" || words[0] == "bin/sandbox") {
				commands = append(commands, words[1:])
			}
		}
		line = ""
		if strings.HasPrefix(part, "sandbox: run: unknown flag: ") { // the page shows a wrong command, and this is its answer
			commands = commands[:len(commands)-1]
		}
	}
	return commands
}

// simpleCommands are the words of the commands in a line of a shell, without redirections and comments. It knows
// quotes and separators, but no substitutions.
func simpleCommands(line string) [][]string {
	commands := [][]string{nil}
	var word strings.Builder
	started, quote, skip := false, rune(0), false
	end := func() {
		last := len(commands) - 1
		if started && !skip {
			commands[last] = append(commands[last], word.String())
		}
		skip = skip && !started
		word.Reset()
		started = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, started = r, true
		case quote == 0 && r == '#' && !started:
			return commands
		case quote == 0 && r == ' ':
			end()
		case quote == 0 && strings.ContainsRune("<>", r):
			if word.String() == "2" {
				word.Reset()
				started = false
			}
			end()
			skip = true
		case quote == 0 && strings.ContainsRune("|;&()", r):
			if skip && r == '&' {
				continue // 2>&1
			}
			end()
			commands = append(commands, nil)
		default:
			word.WriteRune(r)
			started = true
		}
	}
	end()
	return commands
}

func TestSimpleCommands(t *testing.T) {
	for _, c := range []struct {
		line string
		want [][]string
	}{
		{`sandbox run 'a b' "c" # rest`, [][]string{{"sandbox", "run", "a b", "c"}}},
		{`sandbox ls; sandbox show 2>&1 | head -3 >out`, [][]string{{"sandbox", "ls"}, {"sandbox", "show"}, {"head", "-3"}}},
		{`a && b`, [][]string{{"a"}, nil, {"b"}}},
	} {
		assert.Equal(t, c.want, simpleCommands(c.line), c.line)
	}
}
