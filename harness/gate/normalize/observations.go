package normalize

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/internal/logline"
	"github.com/evalbox/evalbox/result"
)

const (
	// maxTouches bounds the touched paths of one gate, and maxTold the line of each.
	maxTouches = 1000
	maxTold    = 500
)

// How a path was touched, and how attempts to reach something were counted.
const (
	howOpened  = "opened"
	howRefused = "refused"

	countedKernel = "kernel"
	countedOutput = "output"
)

// observationsOf makes observations.json (RT-08).
func observationsOf(ctx context.Context, root *os.Root, m evidence.RunManifest, ran []*raw, n *Normalizer) (evidence.Observations, error) {
	all := evidence.Observations{Schema: evidence.ObservationsV1, Commands: []evidence.Observation{}}
	for _, r := range ran {
		if r == nil {
			continue
		}
		o, err := r.observation(ctx, root, m, n)
		if err != nil {
			return all, err
		}
		all.Commands = append(all.Commands, o)
	}
	return all, nil
}

// observation is what one gate tried.
func (r *raw) observation(ctx context.Context, root *os.Root, m evidence.RunManifest, n *Normalizer) (evidence.Observation, error) {
	o := evidence.Observation{Index: r.gate.Index, Network: "none", Counted: countedOutput}
	if level := r.result.Network; level != nil {
		o.Network, o.Refused = level.Level, level.Refused
	}
	told := told{protected: m.ProtectedPaths, touches: map[evidence.Touch]bool{}, n: n}
	for _, name := range []string{"stdout.log", "stderr.log"} {
		s, err := r.stream(ctx, root, name)
		if err != nil {
			return o, err
		}
		if s == nil {
			continue
		}
		err = logline.Each(s, 64<<10, func(line []byte, _ bool) { told.look(line) })
		s.close()
		if err != nil {
			return o, err
		}
	}
	o.NetworkAttempts = told.network
	if seen := r.result.Observed; seen != nil {
		o.Watched = seen.WatchWhy == "" && len(seen.Watched) > 0
		if seen.NetworkAttempts != nil {
			o.NetworkAttempts, o.Counted = *seen.NetworkAttempts, countedKernel
		}
		for _, p := range seen.Opened {
			told.touch(evidence.Touch{Path: strings.TrimPrefix(p, boundary+"/"), How: howOpened})
		}
	}
	o.Touched = told.sorted()
	o.Changed, o.Evidence = changedOf(r.result.Trees, m)
	return o, nil
}

// changedOf finds the changes of the copy that nobody may make: to read-only and
// protected paths, and to files with the names of evidence.
func changedOf(trees []result.Tree, m evidence.RunManifest) (changed, ours []string) {
	readOnly, evidenceFiles := set{}, set{}
	names := []string{evidence.Dir, evidence.RunManifestFile, evidence.VerdictFile, evidence.GatesFile, evidence.WishLockFile, evidence.AttestationFile}
	for _, tree := range trees {
		if tree.Target != boundary {
			continue
		}
		for _, entry := range slices.Concat(tree.Created, tree.Changed, tree.Deleted) {
			if within(entry.Path, m.ReadOnlyPaths) || within(entry.Path, m.ProtectedPaths) {
				readOnly[entry.Path] = true
			}
			if within(entry.Path, names) {
				evidenceFiles[entry.Path] = true
			}
		}
	}
	return readOnly.without(nil), evidenceFiles.without(nil)
}

// within says that a path of the boundary is one of these, or below one.
func within(name string, paths []string) bool {
	for _, p := range paths {
		p = strings.Trim(strings.TrimPrefix(p, "./"), "/")
		if p != "" && (name == p || strings.HasPrefix(name, p+"/")) {
			return true
		}
	}
	return false
}

// told collects what the output tells of refusals.
type told struct {
	protected []string
	n         *Normalizer
	touches   map[evidence.Touch]bool
	network   int64
}

// refusals are how programs and the C library say that they may not; missing, that
// something is not there, which is how hidden files look.
var (
	refusals  = regexp.MustCompile(`(?i)permission denied|operation not permitted|read-only file system|\bEACCES\b|\bEPERM\b|\bEROFS\b`)
	missing   = regexp.MustCompile(`(?i)no such file or directory|\bENOENT\b`)
	noNetwork = regexp.MustCompile(`(?i)network is unreachable|temporary failure in name resolution|name or service not known|could not resolve|couldn't resolve|no such host|getaddrinfo|nodename nor servname|\bENETUNREACH\b|\bEAI_AGAIN\b|no route to host|failed to establish a new connection`)
	// quoted and bare are absolute paths in a message.
	quoted = regexp.MustCompile("['\"`‘“]((?:/|~/)[^'\"`’”]*)['\"`’”]")
	bare   = regexp.MustCompile("(?:^|[\\s(=:,])((?:/|~/)[^\\s'\"`:,;()]+)")
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
	name := t.pathOf(line, where)
	if name == "" || !t.matters(name, absent) {
		return
	}
	if rel, below := strings.CutPrefix(name, boundary+"/"); below {
		name = rel
	}
	said := strings.TrimSpace(string(t.n.Text(line)))
	t.touch(evidence.Touch{Path: name, How: howRefused, Line: clip(strings.ToValidUTF8(said, "\ufffd"), maxTold)})
}

// pathOf is the path that a message is about: a quoted one, else the one nearest to the
// words, first after them and then before.
func (t *told) pathOf(line []byte, where []int) string {
	if all := quoted.FindAllSubmatch(line, -1); len(all) > 0 {
		return string(all[len(all)-1][1])
	}
	if m := bare.FindSubmatch(line[where[1]:]); m != nil {
		return string(m[1])
	}
	if all := bare.FindAllSubmatch(line[:where[0]], -1); len(all) > 0 {
		return string(all[len(all)-1][1])
	}
	return ""
}

// own are the paths that a gate may use as it likes.
var own = []string{"repo", "work", "tmp", "dev/shm", "dev/null", "dev/stdin", "dev/stdout", "dev/stderr"}

// matters says that a refused path is outside of what a gate may touch. One that is not
// there matters only where secrets lie.
func (t *told) matters(name string, absent bool) bool {
	if rel, below := strings.CutPrefix(name, boundary+"/"); below {
		return within(rel, t.protected)
	}
	secret := strings.HasPrefix(name, "~/.ssh") || strings.Contains(name, "/.ssh/") || strings.HasSuffix(name, "/.ssh") || within(strings.TrimPrefix(name, "/"), []string{"root"})
	if secret || absent {
		return secret
	}
	return !within(strings.TrimPrefix(name, "/"), own)
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
