package cli

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/evalbox/evalbox/docs"
	"github.com/evalbox/evalbox/internal/settings"
)

// A topic is a page of the documents, or one section of it, that `sandbox help` shows.
type topic struct {
	name, short string
	part        string // Tutorial, How-to guides, Reference or Explanation
	page        string // such as guides/tutorial.md
	section     string // as in the address of a heading; empty for the whole page
}

// topics reads the index of the documents, docs/README.md: every row of its tables is a topic.
func topics() ([]topic, error) {
	index, err := docs.Pages.ReadFile("README.md")
	if err != nil {
		return nil, err
	}
	var found []topic
	part := ""
	for line := range strings.Lines(string(index)) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			part = heading
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		_, link, ok := strings.Cut(cells[0], "](")
		if !ok || len(cells) != 3 {
			continue
		}
		t := topic{name: strings.Trim(cells[2], " `"), short: inline(strings.TrimSpace(cells[1])), part: part}
		t.page, t.section, _ = strings.Cut(strings.TrimSuffix(strings.TrimSpace(link), ")"), "#")
		found = append(found, t)
	}
	return found, nil
}

const (
	// flagsTopic is the topic that lists the global flags, and topicsTopic the one that lists the topics.
	flagsTopic  = "flags"
	topicsTopic = "topics"
	// textWidth is the width of a text in columns, if the terminal has no fewer.
	textWidth = 80
	// minWidth is the least width to which a text is wrapped.
	minWidth = 30
)

// NewHelp returns the command `help`, for a command or a topic.
func NewHelp(a *App) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | TOPIC]",
		Short: "Explain a command or a topic",
		Long:  "Explain a command or a topic. Without an argument, list the commands and the topics.",
		Example: `  sandbox help run
  sandbox help tutorial
  sandbox help topics     the topics, with a line on each`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var found []cobra.Completion
			above, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, noFiles
			}
			for _, c := range above.Commands() {
				if c.IsAvailableCommand() {
					found = append(found, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			all, err := topics()
			if err != nil || len(args) > 0 {
				return found, noFiles
			}
			for _, t := range all {
				found = append(found, cobra.CompletionWithDesc(t.name, t.short))
			}
			return found, noFiles
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			if len(args) == 0 {
				all, err := topics()
				if err != nil {
					return err
				}
				if err := root.Help(); err != nil {
					return err
				}
				return a.Print("%s", topicNames(all, a.width()))
			}
			if found, rest, err := root.Find(args); err == nil && len(rest) == 0 {
				return found.Help()
			}
			text, err := topicText(root, strings.Join(args, " "), a.width())
			if err != nil {
				return err
			}
			return a.Print("%s", text)
		},
	}
}

// topicText is the text of the topic of this name.
func topicText(root *cobra.Command, name string, width int) (string, error) {
	all, err := topics()
	if err != nil {
		return "", err
	}
	known := []string{flagsTopic, topicsTopic}
	for _, t := range all {
		if t.name == name {
			return t.text(width)
		}
		known = append(known, t.name)
	}
	switch name {
	case flagsTopic:
		return "Flags of every command:\n" + root.PersistentFlags().FlagUsagesWrapped(width), nil
	case topicsTopic:
		return topicList(all), nil
	}
	for _, c := range root.Commands() {
		known = append(known, c.Name())
	}
	hint := "list the commands and the topics with: sandbox help"
	if near := settings.Nearest(name, known); near != "" {
		hint = "did you mean " + near + "?"
	}
	return "", UsageHint(hint, "help: unknown command or topic %q", name)
}

// topicNames lists the names of the topics, by part.
func topicNames(all []topic, width int) string {
	var b strings.Builder
	b.WriteString("\nTopics, for sandbox help TOPIC ('sandbox help topics' says more on each):\n")
	for at := 0; at < len(all); {
		part := all[at].part
		var names []string
		for ; at < len(all) && all[at].part == part; at++ {
			names = append(names, all[at].name)
		}
		b.WriteString("  " + part + ":\n" + wrap(strings.Join(names, " "), "    ", width))
	}
	b.WriteString("  Command line:\n    " + flagsTopic + " " + topicsTopic + "\n")
	return b.String()
}

// topicList lists the topics with a line on each, by part.
func topicList(all []topic) string {
	longest := 0
	for _, t := range all {
		longest = max(longest, len(t.name))
	}
	var b strings.Builder
	part := ""
	for _, t := range append(slices.Clone(all), topic{name: flagsTopic, short: "the flags of every command", part: "Command line"}) {
		if t.part != part {
			part = t.part
			b.WriteString(strings.ToUpper(part) + "\n")
		}
		fmt.Fprintf(&b, "  %-*s  %s\n", longest, t.name, t.short)
	}
	return b.String()
}

// text is the page, or its section, for a terminal.
func (t topic) text(width int) (string, error) {
	page, err := docs.Pages.ReadFile(t.page)
	if err != nil {
		return "", err // a test reads every topic
	}
	source := string(page)
	if t.section != "" {
		title := ""
		for line := range strings.Lines(source) {
			heading, ok := strings.CutPrefix(strings.TrimSpace(line), "## ")
			if ok && strings.ReplaceAll(strings.ToLower(heading), " ", "-") == t.section {
				title = heading
			}
		}
		_, after, ok := strings.Cut(source, "\n## "+title+"\n")
		if !ok {
			return "", fmt.Errorf("the page %s has no section %q", t.page, t.section)
		}
		body, _, _ := strings.Cut(after, "\n## ")
		source = "# " + title + "\n" + body
	}
	return plainText(source, width), nil
}

// width is the number of columns that a text may take.
func (a *App) width() int {
	if file, ok := a.Out.(*os.File); ok && a.OutTerminal {
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil {
			return max(minWidth, min(cmp.Or(columns, textWidth), textWidth))
		}
	}
	return textWidth
}
