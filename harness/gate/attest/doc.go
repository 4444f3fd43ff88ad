// Package attest signs what a gate came to, and checks such a signature offline.
//
// [Sign] writes attestation.dsse.json into a gate directory: a DSSE envelope around an
// in-toto Statement v1, whose subjects are the hashes of evidence.manifest, the verdict,
// GATES.json and the declared outputs, and whose predicate is SLSA Provenance v1. The
// manifest has the hashes of all other evidence, so that the signature covers it.
// Whoever can write to a gate directory can make its hashes fit again; the signature is
// what they cannot make.
//
// [Verify] needs the directory and the public key only. Nothing that the envelope holds
// is looked at before its signature has been checked.
//
// A signature says who vouches for a run, not that the run was right: whoever holds the
// key can sign what they like.
package attest
