// Package guides runs the guides of docs/guides as their readers do: every command, from the top of a page to
// its end, in one shell. The outputs that a page shows are compared up to figures.
//
// A page says how it is read:
//
//   - A block of the language console has commands, each behind "$ ", and below each its output, stdout and
//     stderr together. A command that ends with a backslash goes on in the next line. The line "..." stands for
//     any lines, and "…" for any text of a line.
//   - A command ends with the exit code 0, unless the next command is "echo $?".
//   - Any other block with a file's name behind its language is that file. The paragraph above it names the file.
//   - The first line <!-- guide: NAME --> chooses a setting: an engine, a cluster or stand-ins.
//
// Run it with:
//
//	make test-guides
package guides

import (
	"fmt"
	"regexp"
	"strings"
)

// A Guide is a page that a reader follows.
type Guide struct {
	// Setting is the name in the first line; it may be empty.
	Setting string
	Steps   []Step
}

// A Step writes a file or runs a command.
type Step struct {
	// Line is the number of the step's first line in the page, from 1.
	Line int
	// File is the name of the file to write, with Text as its content; empty for a command.
	File, Text string
	// Command is a command, and Output the output that the page shows; End is the number of the line behind it.
	Command, Output string
	End             int
}

const (
	fence    = "```"
	anyLines = "..."
	anyText  = "…"
)

// Parse reads a page. An error names the line.
func Parse(page string) (Guide, error) {
	lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
	var g Guide
	g.Setting, _ = strings.CutPrefix(strings.TrimSuffix(lines[0], " -->"), "<!-- guide: ")
	if g.Setting == lines[0] {
		g.Setting = ""
	}
	paragraph, above := "", ""
	for at := 0; at < len(lines); at++ {
		line := lines[at]
		info, opens := strings.CutPrefix(line, fence)
		if !opens {
			if paragraph += line + "\n"; line == "" {
				paragraph = ""
			} else {
				above = paragraph
			}
			continue
		}
		end := at + 1
		for end < len(lines) && lines[end] != fence {
			end++
		}
		if end == len(lines) {
			return Guide{}, fmt.Errorf("line %d: the block has no end", at+1)
		}
		language, file, _ := strings.Cut(info, " ")
		block := lines[at+1 : end]
		switch {
		case language == "console":
			steps, err := commands(block, at+2)
			if err != nil {
				return Guide{}, err
			}
			g.Steps = append(g.Steps, steps...)
		case file != "":
			if !strings.Contains(above, "`"+file+"`") {
				return Guide{}, fmt.Errorf("line %d: the paragraph above the block does not name `%s`", at+1, file)
			}
			g.Steps = append(g.Steps, Step{Line: at + 1, File: file, Text: strings.Join(block, "\n") + "\n"})
		case language == "" || language == "sh" || language == "bash" || language == "shell":
			return Guide{}, fmt.Errorf("line %d: want console, or another language, for a block of %q", at+1, language)
		}
		at, paragraph = end, ""
	}
	return g, nil
}

// commands reads a block of commands, whose first line has this number.
func commands(block []string, number int) ([]Step, error) {
	var steps []Step
	for i := 0; i < len(block); i++ {
		command, ok := strings.CutPrefix(block[i], "$ ")
		if !ok {
			if len(steps) == 0 {
				return nil, fmt.Errorf("line %d: want a command, such as: $ sandbox ls", number+i)
			}
			steps[len(steps)-1].Output += block[i] + "\n"
			steps[len(steps)-1].End = number + i + 1
			continue
		}
		step := Step{Line: number + i}
		for strings.HasSuffix(command, `\`) && i+1 < len(block) {
			i++
			command += "\n" + block[i]
		}
		step.Command, step.End = command, number+i+1
		steps = append(steps, step)
	}
	return steps, nil
}

// figures are what differs between two runs of one command.
var figures = []struct {
	found *regexp.Regexp
	with  string
}{
	{regexp.MustCompile(`\b\d{8}t\d{6}-[0-9a-f]{10}\b`), "ID"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\d(\.\d+)?Z?)?\b`), "TIME"},
	{regexp.MustCompile(`\b(sha256:)?[0-9a-f]{7,64}(…|\b)`), "#"}, // and a number of seven digits
	{regexp.MustCompile(`\b(\d+h)?\d+[hm]\d+(m|s|m\d+s)\b`), "#"},
	{regexp.MustCompile(`\d+([.,:]\d+)*(e[-+]?\d+)?( ?([KMGT]i?B|kB|B|ns|µs|ms|s|min|m|h|d|%)\b)?`), "#"},
	{regexp.MustCompile(`#(#|%)+`), "#"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

// upToFigures is a text in which all figures are the same.
func upToFigures(text string) string {
	for _, f := range figures {
		text = f.found.ReplaceAllString(text, f.with)
	}
	var lines []string
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

// Matches reports whether a command printed the output that a page shows.
func Matches(shown, printed string) bool {
	var pattern strings.Builder
	for line := range strings.SplitSeq(upToFigures(shown), "\n") {
		if line == anyLines {
			pattern.WriteString(`(.*\n)*`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), anyText, `.*`) + `\n`)
	}
	// An output without a line and one of an empty line are the same.
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(upToFigures(printed) + "\n")
}
