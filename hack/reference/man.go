package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// noValue stands for the value of a flag that takes none, until the page is written.
const noValue = "NOVALUE"

// writeManPages writes a page for each command, sandbox-COMMAND.1.gz.
func writeManPages(dir, version string, date time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, cmd := range visible(tree()) {
		page, err := manPage(cmd, version, date)
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := w.Write(page); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1.gz"
		if err := os.WriteFile(filepath.Join(dir, name), packed.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// manPage is the page of a command. It changes the texts of the command.
func manPage(cmd *cobra.Command, version string, date time.Time) ([]byte, error) {
	cmd.DisableAutoGenTag = true
	cmd.InitDefaultHelpFlag()
	cmd.Use = strings.ReplaceAll(escape(cmd.Use), "\n  ", "**\n\n**")
	cmd.Short = escape(cmd.Short)
	cmd.Long = paragraphs(cmd.Long)
	cmd.LocalFlags().VisitAll(manFlag)
	cmd.InheritedFlags().VisitAll(manFlag)
	var page bytes.Buffer
	err := doc.GenMan(cmd, &doc.GenManHeader{Section: "1", Date: &date, Source: "evalbox " + version, Manual: "evalbox"}, &page)
	text := bytes.ReplaceAll(page.Bytes(), []byte("[="+noValue+"]"), nil)
	return bytes.Replace(text, []byte("\n.SH"), []byte("\n.nh\n.SH"), 1), err // no hyphens in words that can be copied
}

// manFlag gives a flag the form of a man page: the kind of its value in place of the default,
// which the text names.
func manFlag(flag *pflag.Flag) {
	if _, done := flag.Value.(described); done || flag.Hidden {
		return
	}
	f := flagOf(flag)
	flag.Value, flag.DefValue, flag.Usage = described{flag.Value}, f.kind, escape(f.meaning)
	if f.kind == "" {
		flag.DefValue, flag.NoOptDefVal = noValue, noValue
	}
}

// described is the value of a flag that has the form of a man page.
type described struct{ pflag.Value }

// Type is not "string", whose values doc writes with quotes.
func (described) Type() string { return "described" }

var marks = regexp.MustCompile("[\\\\`*_<>#|~]")

// escape is a text that Markdown shows as it is.
func escape(text string) string { return marks.ReplaceAllString(text, `\$0`) }

// paragraphs is the long text of a command as Markdown: indented lines are examples.
func paragraphs(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t") {
			b.WriteString("    " + strings.TrimLeft(line, "\t"))
			continue
		}
		b.WriteString(escape(line))
	}
	return b.String()
}
