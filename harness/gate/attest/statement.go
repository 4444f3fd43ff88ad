package attest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

const (
	// PayloadType is the type of what the envelope holds.
	PayloadType = "application/vnd.in-toto+json"
	// PredicateType is that of SLSA Provenance v1.
	PredicateType = "https://slsa.dev/provenance/v1"
	// BuildType names the shape of the build definition. A breaking change gets a new one.
	BuildType = "https://github.com/evalbox/evalbox/gate/v1"
	// BuilderID names what carried the gate out.
	BuilderID = "https://github.com/evalbox/evalbox/harness/gate"

	// verdictField is our field of the predicate, named as SLSA wants extensions named.
	verdictField = "evalbox_verdict"
)

// facts are what a gate directory says, as far as a statement repeats it.
type facts struct {
	check    evidence.CheckReport
	manifest evidence.RunManifest
	env      *evidence.EnvSnapshot // nil if nothing ran
	verdict  evidence.Verdict
	subjects []*intoto.ResourceDescriptor
}

// readFacts reads a gate directory, and checks that it holds together: every file is
// what the manifest says, and the verdict is about this manifest. A directory that does
// not is an [*InvalidError].
func readFacts(ctx context.Context, root *os.Root) (facts, error) {
	check, err := evidence.CheckFiles(ctx, root)
	if err != nil {
		return facts{}, err
	}
	var invalid InvalidError
	for _, finding := range check.Findings {
		invalid.add("%s", strings.TrimSuffix(finding.Detail, "."))
	}
	f := facts{check: check}
	read := func(name string, v any) bool {
		err := evidence.Read(root, name, evidence.MaxDocument, v)
		if err != nil {
			invalid.add("%v", err)
		}
		return err == nil
	}
	read(evidence.RunManifestFile, &f.manifest)
	if read(evidence.VerdictFile, &f.verdict) && f.verdict.ManifestSHA256 != check.ManifestSHA256 {
		invalid.add("%s is about another %s", evidence.VerdictFile, evidence.ManifestFile)
	}
	if f.verdict.Status == evidence.Pass && len(check.Missing) > 0 {
		invalid.add("the verdict is PASS, and there is no %s", strings.Join(check.Missing, ", "))
	}
	var env evidence.EnvSnapshot
	switch err := evidence.Read(root, evidence.EnvSnapshotFile, evidence.MaxDocument, &env); {
	case err == nil:
		f.env = &env
	case !errors.Is(err, os.ErrNotExist):
		invalid.add("%v", err)
	}
	var manifest evidence.Manifest
	read(evidence.ManifestFile, &manifest)
	f.subjects, err = subjects(root, manifest, &invalid)
	if err != nil {
		return facts{}, err
	}
	return f, invalid.orNil()
}

// subjects are the files that a statement names, in the order of the directory's
// manifest.
func subjects(root *os.Root, manifest evidence.Manifest, invalid *InvalidError) ([]*intoto.ResourceDescriptor, error) {
	var all []*intoto.ResourceDescriptor
	for _, name := range []string{evidence.ManifestFile, evidence.VerdictFile, evidence.GatesFile} {
		text, err := evidence.ReadText(root, name, evidence.MaxDocument)
		var file *evidence.FileError
		switch {
		case errors.As(err, &file):
			if name == evidence.GatesFile {
				invalid.add("%v", err) // the others are known
			}
			continue
		case err != nil:
			return nil, err
		}
		sum := sha256.Sum256(text)
		all = append(all, described(name, hex.EncodeToString(sum[:])))
	}
	for _, f := range manifest.Files {
		if strings.HasPrefix(f.FilePath, evidence.OutputsDir+"/") {
			all = append(all, described(f.FilePath, f.SHA256))
		}
	}
	return all, nil
}

func described(name, sum string) *intoto.ResourceDescriptor {
	return &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": sum}}
}

// statement is what is said of a gate directory, as JSON. Equal directories get equal
// bytes.
func (f facts) statement() ([]byte, error) {
	definition, err := f.definition()
	if err != nil {
		return nil, err
	}
	p := &provenance.Provenance{
		BuildDefinition: definition,
		RunDetails: &provenance.RunDetails{
			Builder:  &provenance.Builder{Id: BuilderID},
			Metadata: &provenance.BuildMetadata{InvocationId: f.verdict.ManifestSHA256},
		},
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	predicate, err := toStruct(p)
	if err != nil {
		return nil, err
	}
	verdict, err := f.verdictField()
	if err != nil {
		return nil, err
	}
	predicate.Fields[verdictField] = structpb.NewStructValue(verdict)
	s := &intoto.Statement{Type: intoto.StatementTypeUri, Subject: f.subjects, PredicateType: PredicateType, Predicate: predicate}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(s)
	if err != nil {
		return nil, err
	}
	// protojson changes its white space on purpose.
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return nil, err
	}
	return json.Marshal(plain)
}

// definition is what was run, on what, and how.
func (f facts) definition() (*provenance.BuildDefinition, error) {
	m := f.manifest
	commands := make([]any, 0, len(m.Gates))
	for _, g := range m.Gates {
		commands = append(commands, map[string]any{"cmd": g.Cmd, "expect_exit": g.ExpectExit, "kind": string(g.Kind)})
	}
	external, err := structpb.NewStruct(map[string]any{
		"name": m.Name, "wish_sha256": m.WishSHA256, "commands": commands, "io_boundary": m.IOBoundary,
		"offline": m.Mode.Offline, "baseline": m.Repo.BaselineRev,
	})
	if err != nil {
		return nil, err
	}
	var runtimes, tools map[string]any
	if f.env != nil {
		runtimes, tools = texts(f.env.LanguageRuntimes), texts(f.env.ToolVersions)
	}
	internal, err := structpb.NewStruct(map[string]any{
		"environment": map[string]any{
			"vars": texts(m.EnvPolicy.Vars), "timezone": m.EnvPolicy.Timezone, "locale": m.EnvPolicy.Locale, "hash_seed": m.EnvPolicy.HashSeed,
		},
		"language_runtimes": runtimes, "tool_versions": tools,
		"execute": m.Mode.Execute, "sealed": m.Mode.Sealed, "strict": m.Mode.Strict,
		"claim_grade": m.Mode.ClaimGrade, "repeats": m.Mode.Repeats, "dirty": m.Repo.Dirty,
	})
	if err != nil {
		return nil, err
	}
	return &provenance.BuildDefinition{
		BuildType: BuildType, ExternalParameters: external, InternalParameters: internal, ResolvedDependencies: f.dependencies(),
	}, nil
}

// texts are texts as they stand in a statement.
func texts(all map[string]string) map[string]any {
	plain := make(map[string]any, len(all))
	for name, text := range all {
		plain[name] = text
	}
	return plain
}

// dependencies are what the gates ran in and on, as far as it is known by a hash.
// gitCommit is SHA-1 in in-toto; a longer commit is named as a hash of ours.
func (f facts) dependencies() []*intoto.ResourceDescriptor {
	var all []*intoto.ResourceDescriptor
	add := func(name, algorithm, hash string) {
		if hash != "" {
			all = append(all, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{algorithm: hash}})
		}
	}
	image, id, mounts := f.manifest.Toolchain.Image, f.manifest.Toolchain.ImageID, f.manifest.Toolchain.Mounts
	if f.env != nil {
		// What they really ran in.
		image, id, mounts = f.env.Image, f.env.ImageID, f.env.Toolchain
	}
	if sum := strings.TrimPrefix(id, "sha256:"); evidence.IsSHA256(sum) {
		add("image "+image, "sha256", sum)
	}
	commit := func(name, hash string) {
		algorithm := "gitCommit"
		if len(hash) != 40 {
			algorithm = "evalbox_gitCommit"
		}
		add(name, algorithm, hash)
	}
	commit("workspace", f.manifest.Repo.Commit)
	commit("baseline", f.manifest.Repo.BaselineCommit)
	if f.env != nil {
		add("workspace tree", "evalbox_tree", f.env.Workspace)
	}
	for _, mount := range mounts {
		add("toolchain "+mount.Target, "evalbox_tree", mount.Hash)
	}
	return all
}

// verdictField is the judgement in short.
func (f facts) verdictField() (*structpb.Struct, error) {
	v := f.verdict
	c := v.EvidenceSummary.Counts
	return structpb.NewStruct(map[string]any{
		"status": string(v.Status), "stop_reason": string(v.StopReason), "behavior_hash": v.BehaviorHash,
		"commands": v.EvidenceSummary.Commands,
		"counts": map[string]any{
			"total": c.Total, "passed": c.Passed, "failed": c.Failed, "errored": c.Errored,
			"skipped": c.Skipped, "xfailed": c.XFailed, "xpassed": c.XPassed,
		},
	})
}

func toStruct(m proto.Message) (*structpb.Struct, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	if err := protojson.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("predicate: %w", err)
	}
	return s, nil
}
