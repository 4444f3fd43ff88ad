package contract

import (
	"fmt"
	"maps"
	"mime"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evalbox/evalbox/policy"
)

const (
	// maxPattern bounds the pattern of a stream, in bytes.
	maxPattern = 4 << 10
	// maxPurpose and maxMetadata bound the texts of the metadata.
	maxPurpose, maxMetadata = 4 << 10, 1 << 10
)

// outputs checks what is expected of the program, and how much of it is kept (CX-05).
func (k *checker) outputs() {
	const code = "CX-05"
	out := k.c.Outputs
	if *out.ExitCode < 0 || *out.ExitCode > 255 {
		k.refuse(code, "outputs.exit_code", fmt.Sprint(*out.ExitCode), "must be between 0 and 255")
	}
	if p, ok := k.rules.Profiles[k.c.Sandbox.Profile]; ok {
		k.within(code, "outputs.capture.stdout_bytes", out.Capture.StdoutBytes, p.StdoutBytes)
		k.within(code, "outputs.capture.stderr_bytes", out.Capture.StderrBytes, p.StderrBytes)
		k.within(code, "outputs.capture.output_files_bytes", out.Capture.OutputFilesBytes, p.OutputFilesBytes)
		k.within(code, "outputs.capture.artifacts_bytes", out.Capture.ArtifactsBytes, p.ArtifactsBytes)
	}
	k.stream("outputs.stdout", out.Stdout, out.Capture.StdoutBytes)
	k.stream("outputs.stderr", out.Stderr, out.Capture.StderrBytes)
	for i, a := range out.Artifacts {
		field := fmt.Sprintf("outputs.artifacts[%d].mime_type", i)
		if rule := textRule(a.MIMEType, 200); rule != "" {
			k.refuseText(code, field, a.MIMEType, rule)
		} else if kind, _, err := mime.ParseMediaType(a.MIMEType); err != nil || !strings.Contains(kind, "/") {
			k.refuseText(code, field, a.MIMEType, "must be a MIME type such as text/csv")
		}
	}
}

// stream checks what is expected of one stream.
func (k *checker) stream(field string, s Stream, captured *int64) {
	const code = "CX-05"
	if s.Expected != nil && s.Pattern != nil {
		k.refuse(code, field, "", "must have one of expected and pattern, not both")
	}
	if s.Expected != nil {
		switch text := *s.Expected; {
		case !utf8.ValidString(text):
			k.refuse(code, field+".expected", "", "must be UTF-8")
		case captured != nil && int64(len(text)) > *captured:
			k.refuse(code, field+".expected", "", fmt.Sprintf("has %d bytes, of which %d would be captured", len(text), *captured))
		}
	}
	if s.Pattern != nil {
		if rule := textRule(*s.Pattern, maxPattern); rule != "" {
			k.refuseText(code, field+".pattern", *s.Pattern, rule)
		} else if _, err := regexp.Compile(*s.Pattern); err != nil {
			k.refuseText(code, field+".pattern", *s.Pattern, "must be a regular expression: "+strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	}
}

// determinism checks what is fixed (DT-01).
func (k *checker) determinism() {
	const code = "DT-01"
	d := k.c.Determinism
	if d.Seed != nil && (*d.Seed < 0 || *d.Seed > 1<<32-1) {
		k.refuse(code, "determinism.seed", fmt.Sprint(*d.Seed), fmt.Sprintf("must be between 0 and %d", 1<<32-1))
	}
	if d.Seed != nil {
		k.seeds(seedEnv(*d.Seed))
	}
	if d.Clock == "" {
		return
	}
	clock, err := time.Parse(time.RFC3339, d.Clock)
	switch {
	case err != nil:
		k.refuseText(code, "determinism.clock", d.Clock, "must be a time of RFC 3339, such as 2026-01-31T12:00:00Z")
	case clock.Year() < 1971 || clock.Year() > 2099:
		k.refuseText(code, "determinism.clock", d.Clock, "must be of the years 1971 to 2099")
	case clock.Nanosecond() != 0:
		k.refuseText(code, "determinism.clock", d.Clock, "must be in whole seconds")
	default:
		k.clock = clock
	}
}

// seeds refuses variables that contradict the seed: one of the two would not hold.
func (k *checker) seeds(set map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if given, ok := k.env[name]; ok && given != set[name] {
			k.refuseText("DT-01", envField(name), given, "contradicts determinism.seed, which sets it to "+set[name])
		}
	}
}

// adapter checks that there is the adapter (CK-01).
func (k *checker) adapter() {
	if id := k.c.AdapterID; id != "" && !slices.Contains(k.rules.Adapters, id) {
		k.refuseText("CK-01", "adapter_id", id, "No adapter found: leave it out to run the command itself")
	}
}

// iso8601 are the forms of a time that metadata may have.
var iso8601 = []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly}

// identity checks who asks for what (CX-01).
func (k *checker) identity() {
	const code = "CX-01"
	if k.c.Schema != SchemaV1 {
		k.refuseText(code, "schema", k.c.Schema, fmt.Sprintf("want %q", SchemaV1))
	}
	for _, f := range []struct{ field, value string }{
		{"execution_id", k.c.ExecutionID}, {"tool_id", k.c.ToolID}, {"adapter_id", k.c.AdapterID},
	} {
		if err := policy.CheckName(f.field, f.value); f.value != "" && err != nil {
			k.refuseText(code, f.field, f.value, fieldRule(err))
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
			k.refuseText(code, "metadata."+f.field, f.value, rule)
		}
	}
	isTime := func(layout string) bool { _, err := time.Parse(layout, m.RequestedAt); return err == nil }
	if m.RequestedAt != "" && !slices.ContainsFunc(iso8601, isTime) {
		k.refuseText(code, "metadata.requested_at", m.RequestedAt, "must be a time of ISO 8601, such as 2026-01-31T12:00:00Z")
	}
}
