package cli

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/evalbox/evalbox/docs"
	"github.com/evalbox/evalbox/internal/settings"
)

// A topic is a page of the documents, or one section of it, that `sandbox help` shows.
type topic struct{ name, short, page, section string }

var topics = []topic{
	{"exit-codes", "what the exit codes mean", "result", "Exit codes"},
	{"result", "the fields of a result, and every status", "result", ""},
	{"score", "how a program reports its score", "result", "The score"},
	{"metrics", "measurements of a run, and metrics that it prints", "metrics", ""},
	{"stop-rules", "rules that end a run early", "metrics", "Stop rules"},
	{"settings", "every setting: flag, variable, file, default", "settings", ""},
	{"time-limit", "what happens at the time limit", "settings", "The time limit"},
	{"task", "the file that describes a task", "evaluate", "The task"},
	{"evaluation", "scoring solutions, batches and leaderboards", "evaluate", ""},
	{"gates", "tests with evidence", "gate", ""},
	{"wish", "the file that describes a gate", "gate", "The wish"},
	{"contracts", "the file that declares a tool, its permissions and outputs", "contract", ""},
	{"adapters", "calling web APIs, libraries and MCP servers", "adapters", ""},
	{"calls", "calling a tool that declares its artifacts", "invoke", ""},
	{"sweeps", "running a tool over a grid of parameters", "sweep", ""},
	{"reports", "files about batches, sweeps, gates and runs", "report", ""},
	{"images", "the images of the catalog, and your own", "images", ""},
	{"lock", "the image lock", "lock", ""},
	{"network", "which hosts a program may reach", "network", ""},
	{"gpu-leases", "how runs get GPUs", "gpus", ""},
	{"remote", "engines on another machine", "remote", ""},
	{"pools", "containers that wait for runs", "pool", ""},
	{"telemetry", "metrics for Prometheus, traces for OpenTelemetry", "telemetry", ""},
	{"browser", "runs and trials in a web browser", "browse", ""},
	{"agents", "the server for agents", "mcp", ""},
	{"security", "threats, and the answer to each", "security", ""},
}

const (
	// flagsTopic is the topic that lists the global flags.
	flagsTopic = "flags"
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
  sandbox help exit-codes`,
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
			for _, t := range topics {
				if len(args) == 0 {
					found = append(found, cobra.CompletionWithDesc(t.name, t.short))
				}
			}
			return found, noFiles
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			if len(args) == 0 {
				if err := root.Help(); err != nil {
					return err
				}
				return a.Print("%s", topicList())
			}
			if found, rest, err := root.Find(args); err == nil && len(rest) == 0 {
				return found.Help()
			}
			if len(args) == 1 && args[0] == flagsTopic {
				return a.Print("Flags of every command:\n%s", root.PersistentFlags().FlagUsagesWrapped(a.width()))
			}
			for _, t := range topics {
				if len(args) == 1 && t.name == args[0] {
					text, err := t.text(a.width())
					if err != nil {
						return err
					}
					return a.Print("%s", text)
				}
			}
			return unknownTopic(root, strings.Join(args, " "))
		},
	}
}

// topicList lists the topics.
func topicList() string {
	var b strings.Builder
	b.WriteString("\nTopics, for sandbox help TOPIC:\n")
	for _, t := range append(slices.Clone(topics), topic{name: flagsTopic, short: "the flags of every command"}) {
		fmt.Fprintf(&b, "  %-11s %s\n", t.name, t.short)
	}
	return b.String()
}

func unknownTopic(root *cobra.Command, name string) error {
	known := []string{flagsTopic}
	for _, t := range topics {
		known = append(known, t.name)
	}
	for _, c := range root.Commands() {
		known = append(known, c.Name())
	}
	if near := settings.Nearest(name, known); near != "" {
		return UsageHint("did you mean "+near+"?", "help: unknown command or topic %q", name)
	}
	return UsageHint("list the commands and the topics with: sandbox help", "help: unknown command or topic %q", name)
}

// text is the page, or its section, for a terminal.
func (t topic) text(width int) (string, error) {
	page, err := docs.Pages.ReadFile(t.page + ".md")
	if err != nil {
		return "", err // a test reads every topic
	}
	source := string(page)
	if t.section != "" {
		_, after, ok := strings.Cut(source, "\n## "+t.section+"\n")
		if !ok {
			return "", fmt.Errorf("the page %s has no section %q", t.page, t.section)
		}
		body, _, _ := strings.Cut(after, "\n## ")
		source = "# " + t.section + "\n" + body
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

// plainText is a page of Markdown as plain text. It understands what the pages contain:
// headings, paragraphs, lists, tables, and blocks of code, which are not wrapped.
func plainText(source string, width int) string {
	var b strings.Builder
	var paragraph, header []string
	indent := ""
	flush := func() {
		if len(paragraph) > 0 {
			b.WriteString(hang(wrap(inline(strings.Join(paragraph, " ")), indent, width-len(indent)), indent))
		}
		paragraph, indent = nil, ""
	}
	code := false
	for line := range strings.Lines(source) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if !strings.HasPrefix(trimmed, "|") {
			header = nil
		}
		switch {
		case strings.HasPrefix(trimmed, "```"):
			flush()
			code = !code
		case code:
			b.WriteString(strings.TrimRight("    "+line, " ") + "\n")
		case trimmed == "":
			flush()
			b.WriteString("\n")
		case strings.HasPrefix(line, "#"):
			flush()
			b.WriteString(strings.ToUpper(inline(strings.TrimLeft(line, "# "))) + "\n")
		case strings.HasPrefix(trimmed, "|--") || strings.HasPrefix(trimmed, "|-"):
		case strings.HasPrefix(trimmed, "|"):
			flush()
			cells := tableCells(trimmed)
			if header == nil {
				header = cells
				continue
			}
			b.WriteString(tableRow(header, cells, width))
		default:
			if strings.HasPrefix(trimmed, "- ") || numbered(trimmed) {
				flush()
				indent = "  "
			}
			paragraph = append(paragraph, trimmed)
		}
	}
	flush()
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func numbered(line string) bool {
	number, _, ok := strings.Cut(line, ". ")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

func tableCells(line string) []string {
	const bar = "\x00"
	line = strings.ReplaceAll(strings.Trim(line, "|"), `\|`, bar)
	var cells []string
	for cell := range strings.SplitSeq(line, "|") {
		cells = append(cells, inline(strings.TrimSpace(strings.ReplaceAll(cell, bar, "|"))))
	}
	return cells
}

// tableRow is the first cell of a row, and below it the others: the last without its heading,
// because it is the meaning of the first.
func tableRow(header, cells []string, width int) string {
	text := wrap(cells[0], "", width)
	for i, cell := range cells[1:] {
		switch {
		case cell == "":
		case i+2 < len(cells) && i+1 < len(header):
			text += wrap(header[i+1]+": "+cell, "    ", width)
		default:
			text += wrap(cell, "    ", width)
		}
	}
	return text
}

// inline is a text without marks: a link is its text, and code stands for itself.
func inline(text string) string {
	var b strings.Builder
	for text != "" {
		before, rest, ok := strings.Cut(text, "](")
		open := strings.LastIndex(before, "[")
		_, after, closed := strings.Cut(rest, ")")
		if !ok || open < 0 || !closed {
			break
		}
		b.WriteString(before[:open] + before[open+1:])
		text = after
	}
	b.WriteString(text)
	return strings.NewReplacer("`", "", "**", "").Replace(b.String())
}

// hang indents the lines of a text after the first.
func hang(text, indent string) string {
	first, rest, more := strings.Cut(strings.TrimSuffix(text, "\n"), "\n")
	if !more {
		return text
	}
	return first + "\n" + indent + strings.ReplaceAll(rest, "\n", "\n"+indent) + "\n"
}

// wrap breaks a text at spaces into lines of at most width columns.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			b.WriteString(indent)
			column = len(indent)
		case column+1+length > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += length
	}
	return b.String() + "\n"
}
