package attest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

const (
	// maxEnvelope bounds an envelope in bytes, and maxSignatures how many checks of a
	// signature it can cost.
	maxEnvelope   = 16 << 20
	maxSignatures = 16
)

// Verify checks the attestation of a gate directory, offline: that the envelope holds a
// signature of this public key (PEM, at most [MaxKey] bytes), and that what was signed is
// said of exactly this directory: the same files, commands, dependencies and verdict, and
// every file of the evidence the one of the manifest.
//
// What does not hold is an [*InvalidError], also if there is no attestation; a key that
// cannot be used is a [*KeyError]; other errors are of the machine. Verify changes
// nothing. The signature is checked first: of an envelope that the key did not sign, only
// its type is read.
func Verify(ctx context.Context, root *os.Root, publicKey []byte) error {
	key, err := verifier(publicKey)
	if err != nil {
		return err
	}
	var envelope dsse.Envelope
	if err := evidence.Read(root, evidence.AttestationFile, maxEnvelope, &envelope); err != nil {
		var file *evidence.FileError
		if errors.As(err, &file) {
			return invalidf("%v", err)
		}
		return err
	}
	payload, err := open(ctx, envelope, key)
	if err != nil {
		return err
	}
	f, err := readFacts(ctx, root)
	if err != nil {
		return err
	}
	return f.compare(payload)
}

// open checks the signature, and returns what was signed.
func open(ctx context.Context, envelope dsse.Envelope, key dsse.Verifier) ([]byte, error) {
	switch {
	case envelope.PayloadType != PayloadType:
		return nil, invalidf("the envelope holds a payload of the type %.80q, and must hold %q", envelope.PayloadType, PayloadType)
	case len(envelope.Signatures) == 0:
		return nil, invalidf("the envelope has no signature")
	case len(envelope.Signatures) > maxSignatures:
		return nil, invalidf("the envelope has %d signatures; at most %d are checked", len(envelope.Signatures), maxSignatures)
	}
	verifies, err := dsse.NewEnvelopeVerifier(key)
	if err != nil {
		return nil, err
	}
	// One pass: what was checked is what is used.
	_, payload, err := verifies.VerifyAndDecode(ctx, &envelope)
	if err != nil {
		return nil, invalidf("no signature of the envelope is one of this key: it was made with another key, or its content was changed")
	}
	return payload, nil
}

// compare says how a signed statement differs from the one that this directory gets.
func (f facts) compare(payload []byte) error {
	said := &intoto.Statement{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(payload, said); err != nil {
		return invalidf("what was signed is not an in-toto statement")
	}
	if err := said.Validate(); err != nil || said.GetType() != intoto.StatementTypeUri {
		return invalidf("what was signed is not a valid in-toto statement v1")
	}
	if said.GetPredicateType() != PredicateType {
		return invalidf("what was signed has a predicate of the type %.80q, and must have %q", said.GetPredicateType(), PredicateType)
	}
	var invalid InvalidError
	f.compareSubjects(said.GetSubject(), &invalid)
	if err := f.comparePredicate(said, &invalid); err != nil {
		return err
	}
	return invalid.orNil()
}

// compareSubjects wants the same files with the same hashes, in any order.
func (f facts) compareSubjects(said []*intoto.ResourceDescriptor, invalid *InvalidError) {
	signed := map[string]string{}
	for _, s := range said {
		if _, twice := signed[s.GetName()]; twice {
			invalid.add("%.200q was signed twice", s.GetName())
		}
		signed[s.GetName()] = s.GetDigest()["sha256"]
	}
	for _, s := range f.subjects {
		switch sum, ok := signed[s.GetName()]; {
		case !ok:
			invalid.add("%q was not signed", s.GetName())
		case sum != s.GetDigest()["sha256"]:
			invalid.add("%q is not what was signed: it has the SHA-256 %s, the attestation says %.80q", s.GetName(), s.GetDigest()["sha256"], sum)
		}
		delete(signed, s.GetName())
	}
	var left []string
	for name := range signed {
		left = append(left, name)
	}
	slices.Sort(left)
	for _, name := range left {
		invalid.add("%.200q was signed, and is not there", name)
	}
}

// comparePredicate wants the same build definition and the same verdict.
func (f facts) comparePredicate(said *intoto.Statement, invalid *InvalidError) error {
	definition, err := f.definition()
	if err != nil {
		return err
	}
	verdict, err := f.verdictField()
	if err != nil {
		return err
	}
	text, err := json.Marshal(said.GetPredicate().AsMap())
	if err != nil {
		return err
	}
	p := &provenance.Provenance{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, p); err != nil {
		invalid.add("what was signed has a predicate that is not SLSA provenance")
		return nil //nolint:nilerr // it is told
	}
	if err := p.Validate(); err != nil {
		invalid.add("what was signed has a predicate that is not valid SLSA provenance: %v", err)
		return nil
	}
	switch was := p.GetBuildDefinition(); {
	case was.GetBuildType() != BuildType:
		invalid.add("what was signed is a build of the type %.80q, and must be %q", was.GetBuildType(), BuildType)
	case !proto.Equal(was.GetExternalParameters(), definition.GetExternalParameters()),
		!proto.Equal(was.GetInternalParameters(), definition.GetInternalParameters()):
		invalid.add("other commands or flags or another environment were signed than the evidence has")
	case !sameDependencies(was.GetResolvedDependencies(), definition.GetResolvedDependencies()):
		invalid.add("another image, commit or toolchain was signed than the evidence has")
	}
	if !proto.Equal(said.GetPredicate().GetFields()[verdictField].GetStructValue(), verdict) {
		invalid.add("another verdict was signed than %s has", evidence.VerdictFile)
	}
	return nil
}

func sameDependencies(a, b []*intoto.ResourceDescriptor) bool {
	return slices.EqualFunc(sorted(a), sorted(b), func(x, y *intoto.ResourceDescriptor) bool { return proto.Equal(x, y) })
}

func sorted(all []*intoto.ResourceDescriptor) []*intoto.ResourceDescriptor {
	return slices.SortedStableFunc(slices.Values(all), func(x, y *intoto.ResourceDescriptor) int {
		return strings.Compare(x.GetName(), y.GetName())
	})
}
