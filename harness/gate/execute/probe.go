package execute

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// probeScript prints one line for each tool that it finds: its name, a tab and its version, which is
// empty if the tool does not answer in time. The container has the image and the mounted tools, and
// nothing of the workspace. All tools run at once, because Python is slow.
const probeScript = `say() {
  command -v "$1" >/dev/null 2>&1 || return 0
  printf '%s\t%s\n' "$1" "$(timeout 30 "$@" 2>&1 </dev/null | head -n 1 | cut -c 1-200)"
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

// runtimes and tools are the names in the snapshot of what the probe finds.
var (
	runtimes = map[string]string{"python3": "python", "go": "go", "node": "node", "java": "java", "rustc": "rust", "ruby": "ruby", "perl": "perl"}
	tools    = map[string]string{"pytest": "pytest", "npm": "npm", "cargo": "cargo", "gcc": "gcc", "make": "make", "git": "git"}
)

const (
	probeTimeout = 60 * time.Second
	maxProbeText = 64 * policy.KiB
	maxVersion   = 200
	maxPath      = 4096
	// usualPath is the search path beside mounted tools in an image that has no shell.
	usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// prepare finds out what the gates will run in: the hashes of the workspace and of the tools,
// and the versions in the image.
func (x *run) prepare(ctx context.Context) (err error) {
	x.emit(Event{Stage: StageSnapshot})
	x.snapshot = evidence.EnvSnapshot{
		Schema: evidence.EnvSnapshotV1, GitCommit: x.m.Repo.Commit, GitDirty: x.m.Repo.Dirty, RepoRoot: x.m.Repo.Root,
		Image: x.m.Toolchain.Image, Toolchain: []evidence.ToolMount{},
	}
	entries := map[string]string{}
	if x.snapshot.Workspace, err = x.hashOf(ctx, x.workspace, func(name, content string) { entries[name] = content }); err != nil {
		return err
	}
	if x.o.Recorded != "" && x.o.Recorded != x.snapshot.Workspace {
		_ = x.refuse(evidence.ReasonEnvironment, 0, "workspace", "holds other files than were recorded"+differing(x.o.RecordedEntries, entries)) // and the tools
	} else if err := x.writeEntries(entries); err != nil {
		return err
	}
	var bins []string
	for _, tool := range x.m.Toolchain.Mounts {
		recorded := tool.Hash
		switch digest, err := treehash.Of(ctx, tool.Source, treehash.Options{}); {
		case !fsx.IsDir(tool.Source):
			_ = x.refuse(evidence.ReasonMissingDependency, 0, tool.Target, "its directory does not exist")
		case err != nil:
			return err
		default:
			tool.Hash = digest.Sum
		}
		if x.m.Mode.Replay && recorded != tool.Hash {
			_ = x.refuse(evidence.ReasonEnvironment, 0, tool.Target, "its directory holds other files than were recorded")
		}
		x.snapshot.Toolchain = append(x.snapshot.Toolchain, tool)
		if fsx.IsDir(filepath.Join(tool.Source, "bin")) {
			bins = append(bins, path.Join(tool.Target, "bin"))
		}
	}
	if len(x.findings) > 0 {
		return errRefused
	}
	if x.versions, err = x.probe(ctx, bins); err == nil && len(bins) > 0 {
		x.path = cmp.Or(x.versions["path"], strings.Join(append(bins, usualPath), ":"))
	}
	return err
}

// writeSnapshot writes the snapshot, with what the first gate ran on.
func (x *run) writeSnapshot(res *result.Result) error {
	fill(&x.snapshot, x.versions, res)
	x.versions = nil
	return evidence.Write(x.root, evidence.EnvSnapshotFile, x.snapshot)
}

// probe asks the image for versions. The directories stand before its search path. An answer
// is kept in the store, because the same image with the same tools always has the same one.
// Without that a gate with one trivial test takes 2.3 times as long as the plain run, and with
// it 1.1 times.
func (x *run) probe(ctx context.Context, bins []string) (map[string]string, error) {
	req := x.common(x.m.Name + "-probe")
	req.Labels[labelGate], req.Labels[trial.LabelRole] = "probe", "probe"
	first := ""
	for _, dir := range bins {
		first += dir + ":"
	}
	req.Command = []string{"sh", "-c", probeScript, "probe", first}
	req.Limits = policy.Limits{Timeout: probeTimeout, CaptureStdout: maxProbeText, StreamFile: maxProbeText}
	key, err := evidence.Canonical([]any{x.m.Toolchain.ImageID, req.Command, req.Env, req.User, req.Runtime, x.snapshot.Toolchain})
	if err != nil {
		return nil, err
	}
	known := filepath.Join(x.box.Store().Dir(), "versions", fmt.Sprintf("%x", sha256.Sum256(key)))
	if text, err := fsx.Read(known, int64(maxProbeText)); err == nil && x.m.Toolchain.ImageID != "" {
		found, _ := parseProbe(string(text))
		return found, nil
	}
	res, err := x.box.Run(ctx, req, x.o.Hooks, x.work())
	if err := cmp.Or(x.discard(req.ID), x.refused(err, 0), context.Cause(ctx)); err != nil {
		return nil, err
	}
	found, complete := parseProbe(res.Stdout)
	// An image without a shell reports no versions; the judge misses the pinned ones. A tool that did
	// not answer, as on a busy machine, is asked again by the next gate.
	if res.Status == result.StatusExited && res.ExitCode == 0 && !res.StdoutTruncated && complete {
		if err := errors.Join(os.MkdirAll(filepath.Dir(known), 0o700), fsx.WriteFile(known, []byte(res.Stdout), 0o600, false)); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
	}
	return found, nil
}

// parseProbe reads the lines of the probe. They are untrusted: the first clean line of each
// known name counts. The answer is complete if each tool printed its version.
func parseProbe(text string) (found map[string]string, complete bool) {
	found, complete = map[string]string{}, true
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if _, again := found[name]; !ok || again {
			continue
		}
		limit := maxVersion
		switch {
		case name == "path":
			limit = maxPath
		case name == "timezone", name == "locale":
		case runtimes[name] == "" && tools[name] == "":
			continue
		case value == "":
			complete = false
			continue
		}
		if len(value) <= limit && utf8.ValidString(value) && !strings.ContainsFunc(value, unicode.IsControl) {
			found[name] = value
		}
	}
	return found, complete
}

// versionPattern is the first thing in a line that looks like a version.
var versionPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[0-9]+(?:\.[0-9]+)+[0-9A-Za-z.+_-]*`) })

// fill writes what was found into the snapshot. It is pure.
func fill(s *evidence.EnvSnapshot, found map[string]string, res *result.Result) {
	s.OS, s.Arch, _ = strings.Cut(res.Image.Platform, "/")
	s.ImageID, s.ImageLocked = res.Image.ID, res.Image.Locked
	s.Engine, s.Runtime = res.Enforced.Engine, res.Enforced.Runtime
	s.Timezone, s.Locale = found["timezone"], found["locale"]
	s.LanguageRuntimes, s.ToolVersions = map[string]string{}, map[string]string{}
	for name, text := range found {
		version := cmp.Or(versionPattern().FindString(text), text)
		if known := runtimes[name]; known != "" {
			s.LanguageRuntimes[known] = version
		}
		if known := tools[name]; known != "" {
			s.ToolVersions[known] = version
		}
	}
}
