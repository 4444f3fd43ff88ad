package driver

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/evalbox/evalbox/internal/text"
)

// sign is a line of stderr that says what an image lacks.
type sign struct {
	pattern *regexp.Regexp
	// what has %s for the first group of the pattern, if that has one.
	what string
}

// newSign compiles a pattern that is found in one line.
func newSign(pattern, what string) sign { return sign{regexp.MustCompile(`(?m)` + pattern), what} }

// mostStderr bounds the read part of stderr, in bytes. The lines are at its end or its beginning.
const mostStderr = 64 << 10

// notStarted is the exit code of a command that is not there.
const notStarted = 127

// Missing says in words what an image lacks for a call: the interpreter, compiler or package. It is
// empty if the program failed for another reason. It is a hint for people: stderr is also the
// program's.
func Missing(languageName string, exitCode int, stderr string) string {
	l, ok := languages()[languageName]
	switch {
	case !ok, exitCode == 0:
		return ""
	case exitCode == notStarted:
		return l.command
	}
	if len(stderr) > 2*mostStderr {
		stderr = stderr[:mostStderr] + "\n" + stderr[len(stderr)-mostStderr:]
	}
	for _, s := range l.missing {
		if m := s.pattern.FindStringSubmatch(stderr); m != nil {
			if !strings.Contains(s.what, "%s") {
				return s.what
			}
			return fmt.Sprintf(s.what, text.Brief(m[1]))
		}
	}
	return ""
}

func pythonSigns() []sign {
	return []sign{newSign(`^ModuleNotFoundError: No module named '([^']+)'`, "Python package %s")}
}

func nodeSigns() []sign {
	return []sign{
		newSign(`Cannot find module '(/[^']+)'`, "the file %s"),
		newSign(`Cannot find (?:package|module) '([^']+)'`, "Node.js package %s"),
	}
}

func goSigns() []sign {
	return []sign{
		newSign(`^\S*main\.go:\d+:\d+: package (\S+) is not in `, "Go package %s"),
		newSign(`^\S*main\.go:\d+:\d+: cannot find package "(\S+?)"`, "Go package %s"),
		newSign(`no required module provides package ([^\s;:]+)`, "Go package %s in the module of the working directory"),
		newSign(`missing go\.sum entry for module providing package ([^\s;:]+)`, "Go package %s in the module of the working directory"),
		newSign(`cannot find module providing package ([^\s;:]+)`, "Go package %s in the module of the working directory"),
		newSign(`(?:^|\s)([^\s:]+@v[^\s:]+): module lookup disabled by GOPROXY=off`, "Go module %s"),
		newSign(`^go: downloading (\S+) v`, "Go module %s"), // which GOPROXY=off prevents
		newSign(`go\.mod requires go >= (\S+)`, "Go %s"),
	}
}

func rustSigns() []sign {
	return []sign{
		newSign("linker `([^`]+)` not found", "the linker %s"),
		newSign("could not execute process `rustc ", "rustc"),
		newSign("rustup could not choose a version", "a toolchain of Rust"),
		newSign("no matching package named `([^`]+)` found", "Rust crate %s"),
		newSign(`^evalbox: (\S+/Cargo\.toml): No such file`, "the file %s"),
		newSign(`failed to get .(\S+). as a dependency`, "Rust crate %s"),
	}
}
