package normalize

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// told collects what the output tells of refusals.
type told struct {
	protected []string
	n         *Normalizer
	touches   map[evidence.Touch]bool
	network   int64
	// exactly says that the kernel was asked as well. What is printed then counts only
	// where it has the form of the C library or of Python and is about a path of the
	// system: a test may print any other sentence of refusals.
	exactly bool
}

// refusals are how programs and the C library say that they may not; missing, that
// something is not there, which is how hidden files look.
var (
	refusals  = regexp.MustCompile(`(?i)permission denied|operation not permitted|read-only file system|\b(?:EACCES|EPERM|EROFS)\b(?:: permission denied|: operation not permitted|: read-only file system)?`)
	missing   = regexp.MustCompile(`(?i)no such file or directory|\bENOENT\b(?:: no such file or directory)?`)
	noNetwork = regexp.MustCompile(`(?i)network is unreachable|temporary failure in name resolution|name or service not known|could not resolve|couldn't resolve|no such host|getaddrinfo|nodename nor servname|\bENETUNREACH\b|\bEAI_AGAIN\b|no route to host|failed to establish a new connection`)
	// quoted and bare are absolute paths in a message.
	quoted = regexp.MustCompile("['\"`‘“]((?:/|~/)[^'\"`’”]*)['\"`’”]")
	bare   = regexp.MustCompile("(?:^|[\\s(=:,])((?:/|~/)[^\\s'\"`:,;()]+)")
	// errno are the numbers of these errors as Python prints them; ends is what may come
	// after the sentence of the C library where its path stands before it ("cat: PATH:
	// Permission denied"), and follows what may where it stands behind ("Permission denied:
	// PATH", "permission denied, open 'PATH'").
	errno   = regexp.MustCompile(`\[Errno (?:1|2|13|30)\] $`)
	ends    = regexp.MustCompile(`^[\s"'.,;)\]}]*$`)
	follows = regexp.MustCompile(`^(?:: ['"]?|, \w+ ['"])[/~]`)
	// asked is what stands before the path of a URL.
	asked = regexp.MustCompile(`(?i)(?:^|[^\w])(?:get|head|post|put|patch|delete|options|connect|trace|routes?|urls?|endpoints?)[\s:="'` + "`" + `]+$`)
)

// quick are bytes of which a line of refusals has one.
var quick = literals("ermission", "ERMISSION", "not permitted", "ead-only", "EACCES", "EPERM", "EROFS", "o such ", "ENOENT",
	"nreach", "UNREACH", "resol", "not known", "getaddrinfo", "nodename", "EAI_", "o route", "onnection")

// look takes one line of output.
func (t *told) look(line []byte) {
	found := false
	for _, q := range quick {
		found = found || bytes.Contains(line, q)
	}
	if !found {
		return
	}
	if noNetwork.Match(line) {
		t.network++
	}
	where := refusals.FindIndex(line)
	absent := where == nil
	if absent {
		where = missing.FindIndex(line)
	}
	if where == nil {
		return
	}
	name := pathOf(line, where)
	if name == "" || !t.matters(name, absent) || t.exactly && !t.counts(line, where, name) {
		return
	}
	if rel, below := strings.CutPrefix(name, evidence.Boundary+"/"); below {
		name = rel
	}
	said := strings.TrimSpace(string(t.n.Text(line)))
	t.touch(evidence.Touch{Path: name, How: howRefused, Line: clip(strings.ToValidUTF8(said, "\ufffd"), maxTold)})
}

// pathOf is the path that a message is about: a quoted one, else the one nearest to the
// words, first after them and then before. The path of a URL is none.
func pathOf(line []byte, where []int) string {
	var at []int
	if all := quoted.FindAllSubmatchIndex(line, -1); len(all) > 0 {
		at = all[len(all)-1]
	} else if after := bare.FindSubmatchIndex(line[where[1]:]); after != nil {
		at = []int{0, 0, where[1] + after[2], where[1] + after[3]}
	} else if all := bare.FindAllSubmatchIndex(line[:where[0]], -1); len(all) > 0 {
		at = all[len(all)-1]
	}
	if at == nil || asked.Match(line[max(0, at[2]-20):at[2]]) {
		return ""
	}
	return string(line[at[2]:at[3]])
}

// own are the paths that a gate may use as it likes, and system the folders that a
// container has at its root.
var (
	own    = []string{"repo", "work", "tmp", "dev/shm", "dev/null", "dev/stdin", "dev/stdout", "dev/stderr"}
	system = []string{"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "media", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "usr", "var"}
)

// matters says that a refused path is outside of what a gate may touch. One that is not
// there matters only where secrets lie.
func (t *told) matters(name string, absent bool) bool {
	if rel, below := strings.CutPrefix(name, evidence.Boundary+"/"); below {
		return within(rel, t.protected)
	}
	if strings.HasPrefix(name, "//") || strings.ContainsAny(name, "*?{<|\\") {
		return false // a URL, or a pattern
	}
	secret := strings.HasPrefix(name, "~/.ssh") || strings.Contains(name, "/.ssh/") || strings.HasSuffix(name, "/.ssh") || within(strings.TrimPrefix(name, "/"), []string{"root"})
	if secret || absent {
		return secret
	}
	return !within(strings.TrimPrefix(name, "/"), own)
}

// counts says that a line counts although the kernel was asked. where is the sentence.
func (t *told) counts(line []byte, where []int, name string) bool {
	before, after := line[:where[0]], line[where[1]:]
	path, colon := bytes.CutSuffix(before, []byte(": "))
	switch {
	case errno.Match(before) && follows.Match(after), colon && follows.Match(after):
	case colon && ends.Match(after) && bytes.HasSuffix(bytes.TrimRight(path, "'\"’”"), []byte(name)):
	default:
		return false
	}
	return strings.HasPrefix(name, "~/") || strings.HasPrefix(name, evidence.Boundary+"/") || within(strings.TrimPrefix(name, "/"), system)
}

func (t *told) touch(touch evidence.Touch) {
	touch.Path = clip(strings.ToValidUTF8(touch.Path, "\ufffd"), maxTold)
	if len(t.touches) < maxTouches {
		t.touches[touch] = true
	}
}

func (t *told) sorted() []evidence.Touch {
	all := []evidence.Touch{}
	for touch := range t.touches {
		all = append(all, touch)
	}
	slices.SortFunc(all, func(a, b evidence.Touch) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.How, b.How), cmp.Compare(a.Line, b.Line))
	})
	return all
}
