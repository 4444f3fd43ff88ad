package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// probeScript prints one line for each thing that it finds: its name, a tab and the
// first line of what it says about itself. Nothing of the workspace is there: only the
// image and the mounted tools are asked. All are asked at once, as Python takes a while.
const probeScript = `say() {
  command -v "$1" >/dev/null 2>&1 || return 0
  printf '%s\t%s\n' "$1" "$(timeout 10 "$@" 2>&1 </dev/null | head -n 1 | cut -c 1-200)"
}
PATH=$1$PATH
export PATH
printf 'timezone\t%s\n' "$(date +%Z)"
printf 'locale\t%s\n' "${LC_ALL:-${LANG:-}}"
printf 'path\t%s\n' "$PATH"
say python3 --version &
say pytest --version &
say go version &
say node --version &
say npm --version &
say java -version &
say rustc --version &
say cargo --version &
say ruby --version &
say perl -e 'print "$^V\n"' &
say gcc --version &
say make --version &
say git --version &
wait
`

// runtimes and tools are the names under which the snapshot tells what the probe found.
var (
	runtimes = map[string]string{"python3": "python", "go": "go", "node": "node", "java": "java", "rustc": "rust", "ruby": "ruby", "perl": "perl"}
	tools    = map[string]string{"pytest": "pytest", "npm": "npm", "cargo": "cargo", "gcc": "gcc", "make": "make", "git": "git"}
)

const (
	probeTimeout = 30 * time.Second
	maxProbeText = 64 * policy.KiB
	maxVersion   = 200
	maxPath      = 4096
	// usualPath is the search path beside mounted tools in an image that has no shell.
	usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// snapshot writes down what the gates will run in, before any of them does, and returns
// the hash of the workspace.
func (x *run) snapshot(ctx context.Context) (workspace string, err error) {
	x.tell(Event{Stage: StageSnapshot})
	if workspace, err = hashed(ctx, "workspace", x.workspace, evidence.ReasonNoWorkspace); err != nil {
		return "", err
	}
	snapshot := evidence.EnvSnapshot{
		Schema: evidence.EnvSnapshotV1, GitCommit: x.m.Repo.Commit, GitDirty: x.m.Repo.Dirty, RepoRoot: x.m.Repo.Root,
		Workspace: workspace, Image: x.m.Toolchain.Image, Toolchain: []evidence.ToolMount{},
	}
	var bins []string
	for _, tool := range x.m.Toolchain.Mounts {
		if tool.Hash, err = hashed(ctx, tool.Target, tool.Source, evidence.ReasonMissingDependency); err != nil {
			return "", err
		}
		snapshot.Toolchain = append(snapshot.Toolchain, tool)
		if info, err := os.Stat(filepath.Join(tool.Source, "bin")); err == nil && info.IsDir() {
			bins = append(bins, path.Join(tool.Target, "bin"))
		}
	}
	found, res, err := x.probe(ctx, bins)
	if err != nil {
		return "", err
	}
	if len(bins) > 0 {
		x.path = cmp.Or(found["path"], strings.Join(append(bins, usualPath), ":"))
	}
	fill(&snapshot, found, res)
	return workspace, evidence.Write(x.root, evidence.EnvSnapshotFile, snapshot)
}

// hashed is the hash of a tree as it is now. One that is not there is a finding.
func hashed(ctx context.Context, subject, dir string, reason evidence.StopReason) (string, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", refuse(reason, 0, subject, "is not there or no folder", err)
	}
	tree, err := treehash.Of(ctx, dir, treehash.Options{})
	if err != nil {
		return "", fmt.Errorf("hashing %s: %w", subject, err)
	}
	return tree.Sum, nil
}

// probe asks the image for versions. The folders stand before its search path.
func (x *run) probe(ctx context.Context, bins []string) (map[string]string, *result.Result, error) {
	req := x.common(x.m.Name + "-probe")
	req.Labels[labelGate] = "probe"
	first := ""
	for _, dir := range bins {
		first += dir + ":"
	}
	req.Command = []string{"sh", "-c", probeScript, "probe", first}
	req.Limits = policy.Limits{Timeout: probeTimeout, CaptureStdout: maxProbeText, StreamFile: maxProbeText}
	res, err := x.runner.Run(ctx, req, x.o.Hooks)
	err = errors.Join(refusal(err, 0), x.discard(req.ID))
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, res, err
	}
	// An image without a shell has no versions to tell; the judge misses what is pinned.
	return parseProbe(res.Stdout), res, nil
}

// parseProbe reads the lines of the probe. It is pure, and takes nothing at its word
// but what it knows: the first line of each known name, cleaned and shortened.
func parseProbe(text string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if _, again := found[name]; !ok || again {
			continue
		}
		limit := maxVersion
		switch {
		case name == "path":
			limit = maxPath
		case name != "timezone" && name != "locale" && runtimes[name] == "" && tools[name] == "":
			continue
		}
		if len(value) <= limit && utf8.ValidString(value) && !strings.ContainsFunc(value, unicode.IsControl) {
			found[name] = value
		}
	}
	return found
}

// versionPattern is the first thing in a line that looks like a version.
var versionPattern = regexp.MustCompile(`[0-9]+(?:\.[0-9]+)+[0-9A-Za-z.+_-]*`)

// fill writes what was found into the snapshot. It is pure.
func fill(s *evidence.EnvSnapshot, found map[string]string, res *result.Result) {
	s.OS, s.Arch, _ = strings.Cut(res.Image.Platform, "/")
	s.ImageID, s.ImageLocked = res.Image.ID, res.Image.Locked
	s.Engine, s.Runtime = res.Enforced.Engine, res.Enforced.Runtime
	s.Timezone, s.Locale = found["timezone"], found["locale"]
	s.LanguageRuntimes, s.ToolVersions = map[string]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		version := versionPattern.FindString(found[name])
		if version == "" {
			version = found[name]
		}
		if known := runtimes[name]; known != "" {
			s.LanguageRuntimes[known] = version
		}
		if known := tools[name]; known != "" {
			s.ToolVersions[known] = version
		}
	}
}
