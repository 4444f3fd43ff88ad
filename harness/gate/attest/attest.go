// Package attest signs the verdict of a gate, and checks such a signature offline.
//
// [Sign] writes attestation.dsse.json into a gate directory: a DSSE envelope around an
// in-toto Statement v1 with the predicate test-result. Its subjects are the hashes of
// evidence.manifest, which has the hashes of all other evidence, and of the verdict.
// Anyone who can write to a gate directory can adapt its hashes, but cannot create the
// signature.
//
// A signature says who vouches for a run, not that the run was right: the owner of the
// key can sign anything.
package attest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/judge"
)

const (
	// PayloadType is the type of the content of an envelope.
	PayloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
	// PredicateType is the in-toto predicate test-result.
	PredicateType = "https://in-toto.io/attestation/test-result/v0.1"

	// maxEnvelope bounds an envelope in bytes, and maxSignatures the checks of it.
	maxEnvelope   = 1 << 20
	maxSignatures = 16
)

// An InvalidError is a gate directory that cannot be signed, or an attestation that does
// not hold.
type InvalidError struct {
	Problem string
	// Err is the cause, if there is one: [fs.ErrNotExist] if nothing was signed.
	Err error
}

// Unwrap returns Err.
func (e *InvalidError) Unwrap() error { return e.Err }

func (e *InvalidError) Error() string { return e.Problem }

func invalidf(format string, args ...any) error {
	return &InvalidError{Problem: fmt.Sprintf(format, args...)}
}

// Sign writes attestation.dsse.json into a gate directory, in place of an earlier one. The
// key is a private one in PEM, see [CheckKey].
//
// A blocked gate can be signed like one that passed. A directory whose files are not those
// of its manifest, or whose verdict does not follow from them, cannot be signed: an
// [*InvalidError]. A key that cannot be used is a [*KeyError]. Other errors are of the
// machine. After an error nothing was written.
func Sign(ctx context.Context, root *os.Root, key []byte) error {
	signer, err := loadKey(key, true)
	if err != nil {
		return err
	}
	verdict, err := judged(ctx, root)
	if err != nil {
		return err
	}
	files, err := subjects(root)
	if err != nil {
		return err
	}
	tested := testResult{[]resource{{digest{verdict.WishSHA256}, evidence.WishLockFile}}, "FAILED"}
	if verdict.Status == evidence.Pass {
		tested.Result = "PASSED"
	}
	payload, err := json.Marshal(statement{statementType, tested, PredicateType, files})
	if err != nil {
		return err
	}
	envelopes, err := dsse.NewEnvelopeSigner(signer)
	if err != nil {
		return err
	}
	envelope, err := envelopes.SignPayload(ctx, PayloadType, payload)
	if err != nil {
		return err
	}
	return evidence.Write(root, evidence.AttestationFile, envelope)
}

// judged judges a directory again, and compares the verdict with the one in it.
func judged(ctx context.Context, root *os.Root) (v evidence.Verdict, err error) {
	check, err := evidence.CheckFiles(ctx, root)
	if err != nil {
		return v, err
	}
	if len(check.Findings) > 0 {
		return v, invalidf("%s", strings.TrimSuffix(check.Findings[0].Detail, "."))
	}
	in, err := judge.Load(ctx, root, check)
	if err != nil {
		return v, err
	}
	if _, err := read(root, evidence.ManifestFile); err != nil {
		return v, err
	}
	v = judge.Judge(in)
	if err := compare(root, evidence.VerdictFile, v); err != nil {
		return v, err
	}
	return v, compare(root, evidence.GatesFile, judge.Gates(in))
}

// compare compares a file with the document that follows from the evidence.
func compare(root *os.Root, name string, want any) error {
	text, err := read(root, name)
	if err != nil {
		return err
	}
	canonical, err := evidence.Canonical(want)
	if err == nil && !bytes.Equal(text, canonical) {
		err = invalidf("%s is not what follows from the evidence", name)
	}
	return err
}

// read reads a file of a directory.
func read(root *os.Root, name string) ([]byte, error) {
	text, err := evidence.ReadText(root, name, evidence.MaxDocument)
	return text, ofFile(err)
}

// ofFile turns a problem of a file, such as that it is missing, into an [*InvalidError].
func ofFile(err error) error {
	var file *evidence.FileError
	if errors.As(err, &file) {
		return &InvalidError{Problem: err.Error(), Err: file.Err}
	}
	return err
}

// statement is an in-toto Statement v1 with the predicate test-result.
type statement struct {
	Type          string     `json:"_type"`
	Predicate     testResult `json:"predicate"`
	PredicateType string     `json:"predicateType"`
	Subject       []resource `json:"subject"`
}

type testResult struct {
	Configuration []resource `json:"configuration"`
	Result        string     `json:"result"`
}

type resource struct {
	Digest digest `json:"digest"`
	Name   string `json:"name"`
}

type digest struct {
	SHA256 string `json:"sha256"`
}

// subjects are the files that a statement is about, with their hashes.
func subjects(root *os.Root) (all []resource, err error) {
	for _, name := range []string{evidence.ManifestFile, evidence.VerdictFile} {
		text, err := read(root, name)
		if err != nil {
			return nil, err
		}
		all = append(all, resource{digest{evidence.SHA256(text)}, name})
	}
	return all, nil
}

// Verify checks the attestation of a gate directory, offline: the envelope has a signature
// of this public key (PEM, see [CheckPublicKey]), and its subjects are the manifest and the
// verdict of this directory. It does not read the other files: gate.Verify compares them
// with the manifest.
//
// A failed check, including a missing attestation, is an [*InvalidError]; a key that cannot
// be used is a [*KeyError]; other errors are of the machine. Nothing in the envelope but
// its type is read before the signature was checked.
func Verify(ctx context.Context, root *os.Root, publicKey []byte) error {
	key, err := loadKey(publicKey, false)
	if err != nil {
		return err
	}
	var envelope dsse.Envelope
	if err := ofFile(evidence.Read(root, evidence.AttestationFile, maxEnvelope, &envelope)); err != nil {
		return err
	}
	payload, err := open(ctx, envelope, key)
	if err != nil {
		return err
	}
	var signed statement
	if err := json.Unmarshal(payload, &signed); err != nil {
		return invalidf("the signed content is not an in-toto statement")
	}
	switch {
	case signed.Type != statementType:
		return invalidf("the signed content is not a valid in-toto statement v1")
	case signed.PredicateType != PredicateType:
		return invalidf("the signed predicate has the type %.80q, and must have %q", signed.PredicateType, PredicateType)
	}
	files, err := subjects(root)
	if err != nil {
		return err
	}
	if len(signed.Subject) != len(files) {
		return invalidf("the statement is about %d files, and must be about %d", len(signed.Subject), len(files))
	}
	for i, f := range files {
		if got := signed.Subject[i]; got != f {
			return invalidf("%q is not what was signed: it has the SHA-256 %s, and %.80q with %.80q was signed", f.Name, f.Digest.SHA256, got.Name, got.Digest.SHA256)
		}
	}
	return context.Cause(ctx)
}

// open checks the signature, and returns the signed content.
func open(ctx context.Context, envelope dsse.Envelope, key dsse.Verifier) ([]byte, error) {
	switch {
	case envelope.PayloadType != PayloadType:
		return nil, invalidf("the envelope holds a payload of the type %.80q, and must hold %q", envelope.PayloadType, PayloadType)
	case len(envelope.Signatures) == 0 || len(envelope.Signatures) > maxSignatures:
		return nil, invalidf("the envelope has %d signatures; it must have 1 to %d", len(envelope.Signatures), maxSignatures)
	}
	verifier, err := dsse.NewEnvelopeVerifier(key)
	if err != nil {
		return nil, err
	}
	_, payload, err := verifier.VerifyAndDecode(ctx, &envelope)
	if err != nil {
		return nil, invalidf("no signature of the envelope is one of this key: it was made with another key, or its content was changed")
	}
	return payload, nil
}
