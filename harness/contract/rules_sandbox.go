package contract

import (
	"cmp"
	"fmt"
	"maps"
	"mime"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// Levels that need an approval, as in [Approval.Levels].
const (
	NeedElevated = "filesystem:" + string(policy.Elevated)
	NeedOpen     = "network:" + string(policy.Open)
)

const (
	// maxPattern bounds the pattern of a stream, in bytes.
	maxPattern = 4 << 10
	// maxPurpose and maxMetadata bound the texts of the metadata, in bytes.
	maxPurpose, maxMetadata = 4 << 10, 1 << 10
)

// limits checks the limits against the profile (CX-02). A value outside of the inclusive
// bounds is refused, not moved (resolution 6).
func (k *checker) limits() {
	name := k.c.Sandbox.Profile
	if _, ok := k.rules.Profiles[name]; !ok {
		k.refuse("sandbox.profile", name, "is not a profile; there are "+
			cmp.Or(strings.Join(slices.Sorted(maps.Keys(k.rules.Profiles)), ", "), "none")).Hint = hintProfile
	}
	k.bounds()
}

// bounds checks the limits that report with the code of this check.
func (k *checker) bounds() {
	p, ok := k.rules.Profiles[k.c.Sandbox.Profile]
	if !ok {
		return
	}
	for _, l := range k.c.limits(p) {
		if value := **l.value; l.code == k.code && !l.bounds.Has(value) {
			k.refuse(l.field, value, fmt.Sprintf("must be between %d and %d in profile %s", l.bounds.Min, l.bounds.Max, k.c.Sandbox.Profile)).Hint = hintProfile
		}
	}
}

// filesystem checks the level of file access and the paths that are opened in addition
// (CX-03), by their texts: whether a path is below the root is checked when it is resolved.
func (k *checker) filesystem() {
	files := k.c.Sandbox.Filesystem
	level := policy.FilesystemLevel(files.Level)
	rank := slices.Index(policy.FilesystemLevels(), level)
	if rank < 0 {
		k.refuse("sandbox.filesystem.level", files.Level, "must be one of "+text.List(policy.FilesystemLevels())).Hint = hintLevels
		return
	}
	if level == policy.Elevated {
		k.needs = append(k.needs, NeedElevated)
	}
	work, extended := k.c.Inputs.WorkingDirectory, slices.Index(policy.FilesystemLevels(), policy.Extended)
	for _, list := range []struct {
		name  string
		paths []string
		open  func(p string) bool // the level opens the path already
	}{
		{"read", files.Read, func(p string) bool { return level == policy.Standard && !path.IsAbs(p) || below(work, p) }},
		{"write", files.Write, func(p string) bool { return level == policy.Standard && below(work, p) }},
	} {
		for i, p := range list.paths {
			field := fmt.Sprintf("sandbox.filesystem.%s[%d]", list.name, i)
			switch {
			case path.Clean(p) == "/":
				k.refuse(field, p, "would open the whole host")
			case rank < extended && !list.open(p):
				k.refuse(field, p, fmt.Sprintf("is not open to %s at level %s; it takes level extended", list.name, level)).Hint = hintLevels
			}
		}
	}
	k.toolFiles(level, rank)
}

// below reports whether a path is a directory or lies in it, by their texts.
func below(dir, p string) bool {
	dir, p = path.Clean(dir), path.Clean(p)
	return fsx.Within(p, dir) || dir == "." && !path.IsAbs(p)
}

// toolFiles checks the level against the scope of the tool.
func (k *checker) toolFiles(level policy.FilesystemLevel, rank int) {
	const field = "sandbox.filesystem.level"
	if k.t == nil {
		return
	}
	scope := k.t.Scope
	if rank > slices.Index(policy.FilesystemLevels(), scope.Filesystem) {
		k.refuse(field, string(level), fmt.Sprintf("is above %s, the highest level of tool %s", scope.Filesystem, k.t.ID)).Hint = hintLevels
	} else if scope.DataAccess != registry.AccessWrite && level != policy.Minimal {
		k.refuse(field, string(level), fmt.Sprintf("lets the program write, and tool %s has data access %s", k.t.ID, scope.DataAccess)).Hint = hintLevels
	}
	if scope.DataAccess == registry.AccessNone {
		for i, p := range k.c.Inputs.InputFiles {
			k.refuse(fmt.Sprintf("inputs.input_files[%d]", i), p, fmt.Sprintf("is refused: tool %s has data access none", k.t.ID))
		}
	}
}

// network checks the level of network access and the lists of hosts (CX-04).
func (k *checker) network() {
	given, n := k.given.Sandbox.Network, k.c.Sandbox.Network
	if given.Level != "" && !slices.Contains(policy.NetworkLevels(), policy.NetworkLevel(given.Level)) {
		k.refuse("sandbox.network.level", given.Level, "must be one of "+text.List(policy.NetworkLevels()))
		return
	}
	level := policy.NetworkLevel(n.Level)
	switch {
	case given.Enabled != nil && *given.Enabled && level == policy.Offline:
		k.refuse("sandbox.network.enabled", true, "contradicts the level offline")
	case level == policy.Offline && len(n.Allow) > 0:
		k.refuse("sandbox.network.allow", nil, "opens hosts, but the network is offline")
	case level == policy.Open:
		k.needs = append(k.needs, NeedOpen)
	}
	k.hosts("sandbox.network.allow", n.Allow)
	k.hosts("sandbox.network.deny", n.Deny)
	if k.t == nil {
		return
	}
	scope := k.t.Scope
	if slices.Index(policy.NetworkLevels(), level) > slices.Index(policy.NetworkLevels(), scope.Network) {
		k.refuse("sandbox.network.level", string(level), fmt.Sprintf("is above %s, the highest level of tool %s", scope.Network, k.t.ID))
	}
	for i, host := range n.Allow {
		if len(scope.Endpoints) > 0 && !slices.Contains(scope.Endpoints, host) {
			k.refuse(fmt.Sprintf("sandbox.network.allow[%d]", i), host,
				fmt.Sprintf("is not an endpoint of tool %s, which has %s", k.t.ID, strings.Join(scope.Endpoints, ", ")))
		}
	}
}

func (k *checker) hosts(field string, hosts []string) {
	if len(hosts) > maxList {
		k.refuse(field, nil, fmt.Sprintf("has %d hosts; at most %d", len(hosts), maxList))
	}
	for i, host := range hosts {
		if _, err := policy.ParseHostPattern(host); err != nil {
			k.refuse(fmt.Sprintf("%s[%d]", field, i), host, policy.RuleOf(err))
		}
	}
}

// outputs checks what is expected of the program, and how much of it is kept (CX-05).
func (k *checker) outputs() {
	out := k.c.Outputs
	if *out.ExitCode < 0 || *out.ExitCode > 255 {
		k.refuse("outputs.exit_code", *out.ExitCode, "must be between 0 and 255")
	}
	k.bounds()
	k.stream("outputs.stdout", out.Stdout, out.Capture.StdoutBytes)
	k.stream("outputs.stderr", out.Stderr, out.Capture.StderrBytes)
	for i, a := range out.Artifacts {
		field := fmt.Sprintf("outputs.artifacts[%d].mime_type", i)
		if rule := textRule(a.MIMEType, 200); rule != "" {
			k.refuse(field, a.MIMEType, rule)
		} else if kind, _, err := mime.ParseMediaType(a.MIMEType); err != nil || !strings.Contains(kind, "/") {
			k.refuse(field, a.MIMEType, "must be a MIME type such as text/csv")
		}
	}
}

// stream checks the expectation of one stream.
func (k *checker) stream(field string, s Stream, captured *int64) {
	if s.Expected != nil && s.Pattern != nil {
		k.refuse(field, nil, "must have one of expected and pattern, not both")
	}
	if s.Expected != nil {
		switch expected := *s.Expected; {
		case !utf8.ValidString(expected):
			k.refuse(field+".expected", nil, "must be UTF-8")
		case captured != nil && int64(len(expected)) > *captured:
			k.refuse(field+".expected", nil, fmt.Sprintf("has %d bytes, of which %d would be captured", len(expected), *captured))
		}
	}
	if s.Pattern != nil {
		if rule := textRule(*s.Pattern, maxPattern); rule != "" {
			k.refuse(field+".pattern", *s.Pattern, rule)
		} else if _, err := regexp.Compile(*s.Pattern); err != nil {
			k.refuse(field+".pattern", *s.Pattern, "must be a regular expression: "+strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	}
}

// determinism checks the seed and the clock (DT-01).
func (k *checker) determinism() {
	d := k.c.Determinism
	if d.Seed != nil {
		if *d.Seed < 0 || *d.Seed > 1<<32-1 {
			k.refuse("determinism.seed", *d.Seed, fmt.Sprintf("must be between 0 and %d", 1<<32-1))
		}
		sets := seedEnv(*d.Seed)
		for _, name := range slices.Sorted(maps.Keys(sets)) {
			if given, ok := k.env[name]; ok && given != sets[name] {
				k.refuse(envField(name), given, "contradicts determinism.seed, which sets it to "+sets[name])
			}
		}
	}
	if d.Clock == "" {
		return
	}
	clock, err := time.Parse(time.RFC3339, d.Clock)
	switch {
	case err != nil:
		k.refuse("determinism.clock", d.Clock, "must be a time of RFC 3339, such as 2026-01-31T12:00:00Z")
	case clock.Year() < 1971 || clock.Year() > 2099:
		k.refuse("determinism.clock", d.Clock, "must be of the years 1971 to 2099")
	case clock.Nanosecond() != 0:
		k.refuse("determinism.clock", d.Clock, "must be in whole seconds")
	default:
		k.clock = clock
	}
}

// iso8601 are the accepted forms of a time in the metadata.
var iso8601 = []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly}

// adapter checks the call of an adapter (CK-01).
func (k *checker) adapter() {
	id, in := k.c.AdapterID, k.c.Inputs
	k.violations = append(k.violations, k.unadapted...)
	if k.adapted != nil || len(k.unadapted) > 0 {
		return
	}
	if id != "" {
		k.refuse("adapter_id", id, "No adapter found: leave it out to run the command itself").Sentence = fmt.Sprintf("No adapter found '%s'", text.Short(id, mostShown))
		return
	}
	if in.Operation != "" {
		k.refuse("inputs.operation", in.Operation, "is for contracts with an adapter")
	}
	if len(in.Parameters) > 0 {
		k.refuse("inputs.parameters", nil, "are for contracts with an adapter")
	}
}

// identity checks the names and the metadata (CX-01).
func (k *checker) identity() {
	if k.c.Schema != SchemaV1 {
		k.refuse("schema", k.c.Schema, fmt.Sprintf("want %q", SchemaV1))
	}
	for _, f := range []struct{ field, value string }{
		{"execution_id", k.c.ExecutionID}, {"tool_id", k.c.ToolID}, {"adapter_id", k.c.AdapterID},
	} {
		if err := policy.CheckName(f.field, f.value); f.value != "" && err != nil {
			k.refuse(f.field, f.value, policy.RuleOf(err))
		}
	}
	m := k.c.Metadata
	for _, f := range []struct {
		field, value string
		most         int
	}{
		{"requested_by", m.RequestedBy, maxMetadata}, {"purpose", m.Purpose, maxPurpose}, {"evidence_ref", m.EvidenceRef, maxPurpose},
	} {
		if rule := textRule(f.value, f.most); rule != "" {
			k.refuse("metadata."+f.field, f.value, rule)
		}
	}
	isTime := func(layout string) bool { _, err := time.Parse(layout, m.RequestedAt); return err == nil }
	if m.RequestedAt != "" && !slices.ContainsFunc(iso8601, isTime) {
		k.refuse("metadata.requested_at", m.RequestedAt, "must be a time of ISO 8601, such as 2026-01-31T12:00:00Z")
	}
}
