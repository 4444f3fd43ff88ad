package normalize

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

const (
	// maxDenials bounds the denials of one gate, and maxDenial the line of each, in bytes.
	maxDenials = 1000
	maxDenial  = 500
)

// denials reads the permission errors that a program printed (RT-09). The kernel reports
// no event for a refused open, so this is the only trace of it. It is a trace only: a
// program that prints such a line need not have tried anything.
type denials struct {
	protected []string
	allowed   []*regexp.Regexp // of the wish: lines that are no denials
	n         *Normalizer
	printed   map[evidence.Touch]bool
	network   int64  // lines with errors of the network
	first     string // the first of them
	// observed is true if the kernel observed the gate. An error then counts only in the
	// form of the C library or of Python and about a system path, because tests print
	// sentences about permissions too.
	observed bool
	shape    []byte
}

var (
	refusals = sync.OnceValue(func() pattern {
		return compile("denied|permitted|read-only|eacces|eperm|erofs", `(?i)permission denied|operation not permitted|read-only file system|\b(?:EACCES|EPERM|EROFS)\b(?:: permission denied|: operation not permitted|: read-only file system)?`)
	})
	// missing matches the error for a path that does not exist: hidden files look so.
	missing = sync.OnceValue(func() pattern {
		return compile("no such |enoent", `(?i)no such file or directory|\bENOENT\b(?:: no such file or directory)?`)
	})
	noNetwork = sync.OnceValue(func() pattern {
		return compile("unreach|resol|not known|no such host|getaddrinfo|nodename|eai_again|no route|connection", `(?i)network is unreachable|temporary failure in name resolution|name or service not known|could not resolve|couldn't resolve|no such host|getaddrinfo|nodename nor servname|\bENETUNREACH\b|\bEAI_AGAIN\b|no route to host|failed to establish a new connection`)
	})
	// quotedPath and barePath are absolute paths in a message.
	quotedPath = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("['\"`‘“]((?:/|~/)[^'\"`’”]*)['\"`’”]") })
	barePath   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("(?:^|[\\s(=:,])((?:/|~/)[^\\s'\"`:,;()]+)") })
	// urlPath matches the text before the path of a URL.
	urlPath = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:^|[^\w])(?:get|head|post|put|patch|delete|options|connect|trace|routes?|urls?|endpoints?)[\s:="'` + "`" + `]+$`)
	})

	// pythonErrno precedes the sentence in an error of Python. A path follows the sentence
	// as pathFollows, or precedes it and a colon; then messageEnd follows.
	pythonErrno = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\[Errno (?:1|2|13|30)\] $`) })
	pathFollows = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:: ['"]?|, \w+ ['"])[/~]`) })
	messageEnd  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\s"'.,;)\]}]*$`) })
)

// look takes one line of output.
func (d *denials) look(line []byte) {
	d.shape = shape(d.shape[:0], line)
	find := func(p pattern) []int {
		if !p.mayMatch(d.shape) {
			return nil
		}
		return p.FindIndex(line)
	}
	if find(noNetwork()) != nil {
		if message := d.message(line); !d.isAllowed(message) {
			d.network++
			d.first = cmp.Or(d.first, message)
		}
	}
	at := find(refusals())
	absent := at == nil
	if absent {
		if at = find(missing()); at == nil {
			return
		}
	}
	name := pathOf(line, at)
	if name == "" || !d.isForbidden(name, absent) || d.observed && !isSystemError(line, at, name) {
		return
	}
	if message := d.message(line); len(d.printed) < maxDenials && !d.isAllowed(message) {
		d.printed[evidence.Touch{Path: evidence.TouchPath(name), How: evidence.TouchPrinted, Line: message}] = true
	}
}

// message is a line as the evidence has it.
func (d *denials) message(line []byte) string {
	return text.Short(strings.ToValidUTF8(strings.TrimSpace(string(d.n.Text(line))), "\ufffd"), maxDenial)
}

func (d *denials) isAllowed(message string) bool {
	return slices.ContainsFunc(d.allowed, func(a *regexp.Regexp) bool { return a.MatchString(message) })
}

// pathOf is the path of a message: a quoted one, else the one nearest to the sentence,
// first after it and then before it. The path of a URL is not one.
func pathOf(line []byte, sentence []int) string {
	var at []int
	if all := quotedPath().FindAllSubmatchIndex(line, -1); len(all) > 0 {
		at = all[len(all)-1][2:]
	} else if after := barePath().FindSubmatchIndex(line[sentence[1]:]); after != nil {
		at = []int{sentence[1] + after[2], sentence[1] + after[3]}
	} else if all := barePath().FindAllSubmatchIndex(line[:sentence[0]], -1); len(all) > 0 {
		at = all[len(all)-1][2:]
	}
	if at == nil || urlPath().Match(line[max(0, at[0]-20):at[0]]) {
		return ""
	}
	return string(line[at[0]:at[1]])
}

// writable are the paths that a gate may use, and systemDirs the directories at the root
// of a container.
var (
	writable   = []string{"repo", "work", "tmp", "dev/shm", "dev/null", "dev/stdin", "dev/stdout", "dev/stderr"}
	systemDirs = []string{"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "media", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "usr", "var"}
)

// isForbidden reports whether a gate may not touch a path. A path that does not exist is
// forbidden only where secrets are.
func (d *denials) isForbidden(name string, absent bool) bool {
	if rel, below := strings.CutPrefix(name, evidence.Boundary+"/"); below {
		return within(rel, d.protected)
	}
	if strings.HasPrefix(name, "//") || strings.ContainsAny(name, "*?{<|\\") {
		return false // a URL, or a pattern
	}
	if strings.HasPrefix(name, "~/.ssh") || strings.Contains(name+"/", "/.ssh/") || within(name[1:], []string{"root"}) {
		return true
	}
	return !absent && !within(name[1:], writable)
}

// isSystemError reports whether a line has the form of an error of the C library or of
// Python, about a system path.
func isSystemError(line []byte, sentence []int, name string) bool {
	before, after := line[:sentence[0]], line[sentence[1]:]
	beforeColon, colon := bytes.CutSuffix(before, []byte(": "))
	follows := (colon || pythonErrno().Match(before)) && pathFollows().Match(after)
	precedes := colon && messageEnd().Match(after) && bytes.HasSuffix(bytes.TrimRight(beforeColon, "'\"’”"), []byte(name))
	return (follows || precedes) &&
		(strings.HasPrefix(name, "~/") || strings.HasPrefix(name, evidence.Boundary+"/") || within(name[1:], systemDirs))
}
