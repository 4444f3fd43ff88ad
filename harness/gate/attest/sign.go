package attest

import (
	"bytes"
	"context"
	"os"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/judge"
)

// Sign writes attestation.dsse.json into a gate directory, in place of an earlier one.
// The key is a private one in PEM, at most [MaxKey] bytes: Ed25519, ECDSA P-256 (signed
// over SHA-256) or RSA of 2048 to 8192 bits (RSA-PSS with SHA-256), as
// `openssl genpkey` writes it, without a password.
//
// A blocked gate can be signed like one that passed. The directory is judged again: one
// whose files are not what its manifest says, or whose verdict or GATES.json is not what
// follows from them, cannot be signed, and nothing is written: an [*InvalidError]. A key that
// cannot be used is a [*KeyError]; other errors are of the machine.
func Sign(ctx context.Context, root *os.Root, key []byte) error {
	signs, err := signer(key)
	if err != nil {
		return err
	}
	f, err := readFacts(ctx, root)
	if err != nil {
		return err
	}
	if err := judged(ctx, root, f.check); err != nil {
		return err
	}
	payload, err := f.statement()
	if err != nil {
		return err
	}
	envelopes, err := dsse.NewEnvelopeSigner(signs)
	if err != nil {
		return err
	}
	envelope, err := envelopes.SignPayload(ctx, PayloadType, payload)
	if err != nil {
		return err
	}
	return evidence.Write(root, evidence.AttestationFile, envelope)
}

// judged makes sure that the verdict and GATES.json are what follows from the evidence: a
// directory of somebody else may say anything.
func judged(ctx context.Context, root *os.Root, check evidence.CheckReport) error {
	in, err := judge.Load(ctx, root, check)
	if err != nil {
		return err
	}
	var invalid InvalidError
	for _, document := range []struct {
		name string
		want any
	}{{evidence.VerdictFile, judge.Judge(in)}, {evidence.GatesFile, judge.Gates(in)}} {
		text, err := evidence.ReadText(root, document.name, evidence.MaxDocument)
		if err != nil {
			return err
		}
		canonical, err := evidence.Canonical(document.want)
		if err != nil {
			return err
		}
		if !bytes.Equal(text, canonical) {
			invalid.add("%s is not what follows from the evidence", document.name)
		}
	}
	return invalid.orNil()
}
