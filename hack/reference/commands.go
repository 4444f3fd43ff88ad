package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
)

// generated begins each page, so that nobody changes it by hand.
const generated = "<!-- Written by hack/reference. To change it, change the %s, then: make reference -->\n"

// visible lists a command and those below it, by path, without hidden ones.
func visible(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			all = append(all, visible(c)...)
		}
	}
	slices.SortFunc(all, func(a, b *cobra.Command) int { return cmp.Compare(a.CommandPath(), b.CommandPath()) })
	return all
}

// A flag is a flag as its row in a table.
type flag struct{ name, kind, meaning string }

func (f flag) row() string {
	return fmt.Sprintf("| `%s` | %s |\n", strings.TrimSpace(f.name+" "+f.kind), cell(f.meaning))
}

// flagOf reads a flag as the help shows it: it knows which default is worth a word.
func flagOf(f *pflag.Flag) flag {
	alone := pflag.NewFlagSet("", pflag.ContinueOnError)
	alone.AddFlag(f)
	name, meaning, _ := strings.Cut(strings.TrimSpace(alone.FlagUsages()), "   ")
	words := strings.Fields(name)
	if f.Shorthand != "" {
		words = []string{words[0] + " " + words[1], strings.Join(words[2:], " ")}
	} else {
		words = []string{words[0], strings.Join(words[1:], " ")}
	}
	return flag{words[0], words[1], strings.TrimSpace(meaning)}
}

// cell is a text for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;").Replace(text)
}

// A group of flags has its table once, because many commands share them.
type group struct {
	title, anchor string
	keys          []string
	rows          map[string]flag
}

// commandsPage is docs/commands.md.
func commandsPage(top *cobra.Command) string {
	var b strings.Builder
	all := visible(top)
	groups := []*group{
		{title: "Flags of each run", anchor: "flags-of-each-run", keys: cli.RequestKeys},
		{title: "Flags of contracts", anchor: "flags-of-contracts", keys: cli.ContractKeys},
	}
	for _, g := range groups {
		g.rows = common(all, g.keys)
	}
	b.WriteString("# Commands\n\n" + fmt.Sprintf(generated, "command"))
	b.WriteString("\nThis page lists every command with its flags, for looking up. `sandbox COMMAND --help` explains a command, and so does\n" +
		"`man sandbox-COMMAND`. [settings.md](settings.md) explains the flags that are settings, [result.md](result.md#exit-codes) the exit codes.\n\n")
	b.WriteString("| command | does |\n|---|---|\n")
	for _, cmd := range all[1:] {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", cmd.CommandPath(), anchor(cmd), cell(cmd.Short))
	}
	b.WriteString("\n## Global flags\n\nEvery command has these.\n\n")
	table(&b, flagsOf(top.PersistentFlags()))
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s\n\nThe commands to which they apply link to this table.\n\n", g.title)
		var rows []flag
		for _, row := range g.rows {
			rows = append(rows, row)
		}
		table(&b, rows)
	}
	for _, cmd := range all {
		section(&b, cmd, groups)
	}
	return b.String()
}

// common are the flags of settings that most commands have in the same form, by their names.
func common(all []*cobra.Command, keys []string) map[string]flag {
	count := map[flag]int{}
	for _, cmd := range all {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains(keys, settings.KeyOf(f)) && !f.Hidden {
				count[flagOf(f)]++
			}
		})
	}
	rows := map[string]flag{}
	for f, n := range count {
		former, ok := rows[f.name]
		if n > 1 && (!ok || cmp.Or(cmp.Compare(n, count[former]), cmp.Compare(former.meaning, f.meaning)) > 0) {
			rows[f.name] = f
		}
	}
	return rows
}

// section describes a command.
func section(b *strings.Builder, cmd *cobra.Command, groups []*group) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n\n```text\n%s\n```\n\n", cmd.CommandPath(), strings.TrimSuffix(cmd.Short, "."), strings.ReplaceAll(cmd.UseLine(), "\n  ", "\n"))
	codes := "[Exit codes](result.md#exit-codes)"
	if own := exitCodes(cmd.Long); own != "" {
		codes = own + " See the [exit codes](result.md#exit-codes)"
	}
	b.WriteString(wrap(codes + "."))
	own := cmd.LocalNonPersistentFlags()
	var rows []flag
	shared := map[*group][]string{}
	own.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		row := flagOf(f)
		for _, g := range groups {
			if g.rows[row.name] == row {
				shared[g] = append(shared[g], row.name)
				return
			}
		}
		rows = append(rows, row)
	})
	for _, g := range groups {
		switch n := len(shared[g]); {
		case n == len(g.rows):
			fmt.Fprintf(b, "\nAll [%s](#%s) apply.\n", strings.ToLower(g.title[:1])+g.title[1:], g.anchor)
		case n > 0:
			fmt.Fprintf(b, "\nOf the [%s](#%s), these apply: `%s`.\n", strings.ToLower(g.title[:1])+g.title[1:], g.anchor, strings.Join(shared[g], "`, `"))
		}
	}
	if len(rows) > 0 {
		b.WriteString("\n")
		table(b, rows)
	}
}

// flagsOf are the flags of a set that help shows.
func flagsOf(set *pflag.FlagSet) (rows []flag) {
	set.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			rows = append(rows, flagOf(f))
		}
	})
	return rows
}

// table writes flags, sorted by their long names.
func table(b *strings.Builder, rows []flag) {
	long := func(f flag) string {
		_, name, _ := strings.Cut(f.name, "--")
		return name
	}
	slices.SortFunc(rows, func(a, b flag) int { return cmp.Compare(long(a), long(b)) })
	b.WriteString("| flag | meaning |\n|---|---|\n")
	for _, row := range rows {
		b.WriteString(row.row())
	}
}

var sentence = regexp.MustCompile(`(?:^|[.\n] ?)((?:The|Its) exit code [\s\S]*)`)

// exitCodes is the part of a long text that begins with the exit code, to the end of its
// paragraph.
func exitCodes(long string) string {
	for paragraph := range strings.SplitSeq(long, "\n\n") {
		if found := sentence.FindStringSubmatch(paragraph); found != nil {
			return strings.Join(strings.Fields(found[1]), " ")
		}
	}
	return ""
}

// anchor is where the section of a command is in the page.
func anchor(cmd *cobra.Command) string {
	return strings.ReplaceAll(cmd.CommandPath(), " ", "-")
}

// width is that of the pages, in columns.
const width = 125

// wrap breaks a paragraph into lines.
func wrap(text string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		if column > 0 && column+1+len(word) > width {
			b.WriteString("\n")
			column = 0
		} else if column > 0 {
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String() + "\n"
}
