package main

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
)

// maxEnvFile bounds a file of variables, far above what a program can be given.
const maxEnvFile = 16 << 20

// readEnvFile reads variables as docker run --env-file does: NAME=VALUE, or NAME
// alone for the caller's own value, if there is one; lines that begin with # and
// blank lines say nothing. Nothing is unquoted or expanded.
func readEnvFile(file string, environ []string, into map[string]string) error {
	data, err := fsx.Read(file, maxEnvFile)
	if err != nil {
		return &fileError{fileEnv, file, err}
	}
	if err := parseEnvFile(data, environ, into); err != nil {
		return &fileError{fileEnv, file, err}
	}
	return nil
}

// parseEnvFile reads the text of the file. Its errors name the line.
func parseEnvFile(data []byte, environ []string, into map[string]string) error {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimLeft(lines.Text(), " \t")
		if !utf8.ValidString(line) {
			return fmt.Errorf("line %d is not UTF-8 text", n)
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := addEnv(line, environ, into); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lines.Err()
}

// addEnv adds one variable as docker run --env does.
func addEnv(pair string, environ []string, into map[string]string) error {
	name, text, given := strings.Cut(pair, "=")
	if name == "" || strings.ContainsAny(name, " \t") {
		return fmt.Errorf("variable %q: must be NAME=VALUE or NAME", name)
	}
	if given {
		into[name] = text
		return nil
	}
	for _, own := range environ {
		if text, ok := strings.CutPrefix(own, name+"="); ok {
			into[name] = text
		}
	}
	return nil
}

// lookup is the value of a variable of an environment; empty for none.
func lookup(environ []string, name string) string {
	for _, pair := range environ {
		if text, ok := strings.CutPrefix(pair, name+"="); ok {
			return text
		}
	}
	return ""
}
