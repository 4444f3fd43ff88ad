package attest

import (
	"context"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/judge"
	"github.com/evalbox/evalbox/harness/gate/spec"
	"github.com/evalbox/evalbox/result"
)

const sum = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// gateDir is a gate directory of a run that passed and printed a log.
func gateDir(t *testing.T, log string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, root.Close()) })
	write := func(name string, v any) { require.NoError(t, evidence.Write(root, name, v)) }
	text := func(name, text string) { require.NoError(t, evidence.WriteText(root, name, []byte(text))) }
	lock := sealedWish(t)
	sealed, err := lock.JSON()
	require.NoError(t, err)
	text(evidence.WishLockFile, string(sealed))
	argv := []string{"pytest", "-q"}
	write(evidence.RunManifestFile, evidence.RunManifest{
		Schema: evidence.RunManifestV1, Name: "unit", WishSHA256: lock.SHA256, GateCommands: []string{"pytest -q"}, IOBoundary: "./", Workspace: "/w",
		Gates:     []evidence.Gate{{Index: 1, Command: evidence.Command{Cmd: "pytest -q", Kind: evidence.KindTests, Report: evidence.ReportAuto}, Argv: argv}},
		EnvPolicy: evidence.EnvPolicy{Vars: map[string]string{"CI": "true"}, Timezone: "UTC", Locale: "C.UTF-8", HashSeed: "0"},
		Toolchain: lock.Toolchain, Repo: evidence.Repo{Commit: strings.Repeat("c", 40)},
		Mode: evidence.Mode{Execute: true, Sealed: true, Tools: true, Flags: evidence.Flags{Offline: true}, Repeats: 1},
	})
	write(evidence.PlanFile, evidence.Plan{GateCommands: []string{"pytest -q"}})
	text(evidence.RunLogFile, log)
	write(evidence.TestsFile, evidence.Tests{Schema: evidence.TestsV1, Command: "pytest -q", ExitCode: new(int), Commands: []evidence.CommandTests{{
		Index: 1, Command: "pytest -q", Argv: argv, Kind: evidence.KindTests, Started: true, Ending: "exited", ExitCode: new(int),
		LogsComplete: true, LogSHA256: sum, Source: evidence.ReportPytest, Counts: &evidence.Counts{Total: 2, Passed: 2},
	}}})
	write(evidence.ObservationsFile, evidence.Observations{Schema: evidence.ObservationsV1, Commands: []evidence.Observation{
		{Index: 1, Complete: true, Network: "none", Counted: "kernel", Watched: true},
	}})
	write(evidence.NormalizationFile, evidence.Normalization{Schema: evidence.NormalizationV1})
	text(evidence.BehaviorHashFile, sum+"\n")
	write(evidence.FindingsFile, evidence.Findings{})
	write(evidence.EnvSnapshotFile, evidence.EnvSnapshot{
		Schema: evidence.EnvSnapshotV1, GitCommit: strings.Repeat("c", 40), Image: "debian", ImageID: "sha256:" + sum, Workspace: sum,
		LanguageRuntimes: map[string]string{"python": "3.11.2"}, ToolVersions: map[string]string{"pytest": "7.2.1"},
		Toolchain: []evidence.ToolMount{{Source: "/opt/go", Target: "/host/go", Hash: sum}},
	})
	res := result.Result{
		Schema: result.SchemaV1, Status: result.StatusExited, Fault: result.FaultNone, OutputComplete: true, StdoutBytes: int64(len(log)),
		Observed: &result.Observed{NetworkAttempts: new(int64), Watched: []string{"/etc/shadow"}},
	}
	raw, err := res.Encode()
	require.NoError(t, err)
	text(evidence.RawFile("", 1, "result.json"), string(raw))
	text(evidence.RawFile("", 1, "stdout.log"), log)
	text(evidence.RawFile("", 1, "stderr.log"), "")
	text(evidence.OutputsDir+"/01/model.bin", "model")
	reseal(t, root)
	return root
}

func sealedWish(t *testing.T) spec.Lock {
	t.Helper()
	w, err := spec.Parse([]byte("{name: unit, image: debian, claim_grade: false, gate_commands: [pytest -q], toolchain: [{source: /opt/go, target: /host/go}]}"), "wish.yaml")
	require.NoError(t, err)
	lock, err := spec.Seal(w, evidence.Toolchain{
		Image: "debian", ImageID: "sha256:" + sum, Mounts: []evidence.ToolMount{{Source: "/opt/go", Target: "/host/go", Hash: sum}},
	})
	require.NoError(t, err)
	return lock
}

// reseal makes the hashes and the verdict of a directory fit its files again. Anyone who
// can write to it can do that.
func reseal(t *testing.T, root *os.Root) {
	t.Helper()
	_, err := evidence.HashArtifacts(t.Context(), root)
	require.NoError(t, err)
	_, err = evidence.WriteManifest(t.Context(), root)
	require.NoError(t, err)
	check, err := evidence.CheckFiles(t.Context(), root)
	require.NoError(t, err)
	in, err := judge.Load(t.Context(), root, check)
	require.NoError(t, err)
	require.NoError(t, evidence.Write(root, evidence.VerdictFile, judge.Judge(in)))
	require.NoError(t, evidence.Write(root, evidence.GatesFile, judge.Gates(in)))
}

// edit changes the verdict.
func edit(t *testing.T, root *os.Root, change func(v *evidence.Verdict)) {
	t.Helper()
	var v evidence.Verdict
	require.NoError(t, evidence.Read(root, evidence.VerdictFile, maxEnvelope, &v))
	change(&v)
	require.NoError(t, evidence.Write(root, evidence.VerdictFile, v))
}

type pair struct{ private, public []byte }

func pairOf(t *testing.T, private, public any) pair {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	pub, err := x509.MarshalPKIXPublicKey(public)
	require.NoError(t, err)
	return pair{block("PRIVATE KEY", der), block("PUBLIC KEY", pub)}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func newEd25519(t *testing.T) pair {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return pairOf(t, private, public)
}

func newECDSA(t *testing.T, curve elliptic.Curve) (*ecdsa.PrivateKey, pair) {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	require.NoError(t, err)
	return key, pairOf(t, key, key.Public())
}

func newRSA(t *testing.T, bits int) (*rsa.PrivateKey, pair) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	require.NoError(t, err)
	return key, pairOf(t, key, key.Public())
}

func TestSignAndVerify(t *testing.T) {
	p256, ecPair := newECDSA(t, elliptic.P256())
	ecDER, err := x509.MarshalECPrivateKey(p256)
	require.NoError(t, err)
	rsaKey, rsaPair := newRSA(t, 2048)
	keys := map[string]pair{
		"Ed25519":             newEd25519(t),
		"ECDSA":               ecPair,
		"RSA":                 rsaPair,
		"EC with parameters":  {append(block("EC PARAMETERS", []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}), block("EC PRIVATE KEY", ecDER)...), ecPair.public},
		"RSA in the old form": {block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey)), block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey))},
	}
	for name, key := range keys {
		t.Run(name, func(t *testing.T) {
			root := gateDir(t, "2 passed\n")
			require.NoError(t, Sign(t.Context(), root, key.private))
			require.NoError(t, Verify(t.Context(), root, key.public))
			var invalid *InvalidError
			require.ErrorAs(t, Verify(t.Context(), root, newEd25519(t).public), &invalid)
			assert.Contains(t, invalid.Error(), "no signature of the envelope is one of this key")
		})
	}
}

// payload is the content of an envelope.
func payload(t *testing.T, root *os.Root) map[string]any {
	t.Helper()
	var envelope dsse.Envelope
	require.NoError(t, evidence.Read(root, evidence.AttestationFile, maxEnvelope, &envelope))
	text, err := envelope.DecodeB64Payload()
	require.NoError(t, err)
	var said map[string]any
	require.NoError(t, json.Unmarshal(text, &said))
	return said
}

func TestStatement(t *testing.T) {
	root, key := gateDir(t, "2 passed\n"), newEd25519(t)
	require.NoError(t, Sign(t.Context(), root, key.private))
	said := payload(t, root)
	assert.Equal(t, "https://in-toto.io/Statement/v1", said["_type"])
	assert.Equal(t, PredicateType, said["predicateType"])
	var names []string
	for _, s := range said["subject"].([]any) {
		names = append(names, s.(map[string]any)["name"].(string))
	}
	assert.Equal(t, []string{evidence.ManifestFile, evidence.VerdictFile}, names)
	assert.Equal(t, map[string]any{
		"result":        "PASSED",
		"configuration": []any{map[string]any{"name": evidence.WishLockFile, "digest": map[string]any{"sha256": sealedWish(t).SHA256}}},
	}, said["predicate"])

	var first, second dsse.Envelope
	require.NoError(t, evidence.Read(root, evidence.AttestationFile, maxEnvelope, &first))
	require.NoError(t, Sign(t.Context(), root, key.private))
	require.NoError(t, evidence.Read(root, evidence.AttestationFile, maxEnvelope, &second))
	assert.Equal(t, first, second, "signing again says the same")
}

// TestVerifyTampered: Verify finds every change after the signature, also if all hashes
// were made to fit again.
func TestVerifyTampered(t *testing.T) {
	key, other := newEd25519(t), newEd25519(t)
	write := func(name, text string) func(*testing.T, *os.Root) {
		return func(t *testing.T, root *os.Root) { require.NoError(t, evidence.WriteText(root, name, []byte(text))) }
	}
	remove := func(name string) func(*testing.T, *os.Root) {
		return func(t *testing.T, root *os.Root) { require.NoError(t, root.Remove(name)) }
	}
	envelope := func(change func(e *dsse.Envelope)) func(*testing.T, *os.Root) {
		return func(t *testing.T, root *os.Root) {
			var e dsse.Envelope
			require.NoError(t, evidence.Read(root, evidence.AttestationFile, maxEnvelope, &e))
			change(&e)
			require.NoError(t, evidence.Write(root, evidence.AttestationFile, e))
		}
	}
	// said signs another statement with the right key.
	said := func(change func(s map[string]any)) func(*testing.T, *os.Root) {
		return func(t *testing.T, root *os.Root) {
			s := payload(t, root)
			change(s)
			text, err := json.Marshal(s)
			require.NoError(t, err)
			signText(t, root, key, PayloadType, text)
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, *os.Root)
		want   string
	}{
		"no attestation": {remove(evidence.AttestationFile), "attestation.dsse.json is missing"},
		"a link": {func(t *testing.T, root *os.Root) {
			require.NoError(t, root.Rename(evidence.AttestationFile, "aside"))
			require.NoError(t, root.Symlink("aside", evidence.AttestationFile))
		}, "is not a regular file"},
		"no JSON":      {write(evidence.AttestationFile, "{"), "is not one valid JSON document"},
		"too large":    {write(evidence.AttestationFile, strings.Repeat(" ", maxEnvelope+1)), "has more than"},
		"no signature": {envelope(func(e *dsse.Envelope) { e.Signatures = []dsse.Signature{} }), "0 signatures"},
		"many signatures": {envelope(func(e *dsse.Envelope) {
			for range maxSignatures {
				e.Signatures = append(e.Signatures, e.Signatures[0])
			}
		}), "1 to 16"},
		"a changed signature": {envelope(func(e *dsse.Envelope) {
			e.Signatures[0].Sig = base64.StdEncoding.EncodeToString(make([]byte, ed25519.SignatureSize))
		}), "no signature of the envelope"},
		"a signature that is not base64": {envelope(func(e *dsse.Envelope) { e.Signatures[0].Sig = "!" }), "no signature of the envelope"},
		"a changed payload": {envelope(func(e *dsse.Envelope) {
			text, _ := e.DecodeB64Payload()
			e.Payload = base64.StdEncoding.EncodeToString([]byte(strings.Replace(string(text), `"PASSED"`, `"PASSEZ"`, 1)))
		}), "no signature of the envelope"},
		"another payload type": {envelope(func(e *dsse.Envelope) { e.PayloadType = "text/plain" }), "payload of the type"},
		"another key":          {func(t *testing.T, root *os.Root) { require.NoError(t, Sign(t.Context(), root, other.private)) }, "no signature of the envelope"},
		"all hashes made to fit": {func(t *testing.T, root *os.Root) {
			write(evidence.RunLogFile, "3 passed\n")(t, root)
			reseal(t, root)
		}, `"evidence/evidence.manifest" is not what was signed`},
		"another verdict": {func(t *testing.T, root *os.Root) {
			edit(t, root, func(v *evidence.Verdict) { v.Status = evidence.Blocked })
		}, `"ExecutionVerdict.json" is not what was signed`},
		"the envelope of another run": {func(t *testing.T, root *os.Root) {
			from := gateDir(t, "5 passed\n")
			require.NoError(t, Sign(t.Context(), from, key.private))
			text, err := evidence.ReadText(from, evidence.AttestationFile, maxEnvelope)
			require.NoError(t, err)
			require.NoError(t, evidence.WriteText(root, evidence.AttestationFile, text))
		}, `"evidence/evidence.manifest" is not what was signed`},
		"no verdict":                {remove(evidence.VerdictFile), "ExecutionVerdict.json is missing"},
		"signed: not a statement":   {func(t *testing.T, root *os.Root) { signText(t, root, key, PayloadType, []byte(`[1]`)) }, "is not an in-toto statement"},
		"signed: another statement": {said(func(s map[string]any) { s["_type"] = "https://in-toto.io/Statement/v0.1" }), "not a valid in-toto statement v1"},
		"signed: another predicate": {said(func(s map[string]any) { s["predicateType"] = "https://slsa.dev/provenance/v1" }), "the signed predicate has the type"},
		"signed: a subject twice": {said(func(s map[string]any) {
			all := s["subject"].([]any)
			s["subject"] = append(all, all[0])
		}), "about 3 files"},
		"signed: one subject less": {said(func(s map[string]any) { s["subject"] = s["subject"].([]any)[1:] }), "about 1 files"},
		"signed: another subject": {said(func(s map[string]any) {
			s["subject"].([]any)[0].(map[string]any)["name"] = "other"
		}), `"evidence/evidence.manifest" is not what was signed`},
	} {
		t.Run(name, func(t *testing.T) {
			root := gateDir(t, "2 passed\n")
			require.NoError(t, Sign(t.Context(), root, key.private))
			require.NoError(t, Verify(t.Context(), root, key.public))
			c.change(t, root)
			err := Verify(t.Context(), root, key.public)
			var invalid *InvalidError
			require.ErrorAs(t, err, &invalid)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func signText(t *testing.T, root *os.Root, key pair, kind string, text []byte) {
	t.Helper()
	signs, err := loadKey(key.private, true)
	require.NoError(t, err)
	envelopes, err := dsse.NewEnvelopeSigner(signs)
	require.NoError(t, err)
	envelope, err := envelopes.SignPayload(t.Context(), kind, text)
	require.NoError(t, err)
	require.NoError(t, evidence.Write(root, evidence.AttestationFile, envelope))
}

// TestSignRefuses: a directory that contradicts itself is not signed, and nothing is
// written.
func TestSignRefuses(t *testing.T) {
	key := newEd25519(t)
	for name, c := range map[string]struct {
		change func(*testing.T, *os.Root)
		want   string
	}{
		"a changed file": {func(t *testing.T, root *os.Root) {
			require.NoError(t, evidence.WriteText(root, evidence.RunLogFile, []byte("x")))
		}, "is not what was hashed"},
		"no verdict":  {func(t *testing.T, root *os.Root) { require.NoError(t, root.Remove(evidence.VerdictFile)) }, "ExecutionVerdict.json is missing"},
		"no gates":    {func(t *testing.T, root *os.Root) { require.NoError(t, root.Remove(evidence.GatesFile)) }, "GATES.json is missing"},
		"no manifest": {func(t *testing.T, root *os.Root) { require.NoError(t, root.Remove(evidence.ManifestFile)) }, "evidence.manifest is missing"},
		"a verdict of another run": {func(t *testing.T, root *os.Root) {
			text, err := evidence.ReadText(gateDir(t, "other"), evidence.VerdictFile, maxEnvelope)
			require.NoError(t, err)
			require.NoError(t, evidence.WriteText(root, evidence.VerdictFile, text))
		}, "ExecutionVerdict.json is not what follows from the evidence"},
		"a pass without its files": {func(t *testing.T, root *os.Root) {
			require.NoError(t, root.Remove(evidence.PlanFile))
			reseal(t, root)
			edit(t, root, func(v *evidence.Verdict) { v.Status = evidence.Pass })
		}, "ExecutionVerdict.json is not what follows from the evidence"},
		"a verdict that does not follow": {func(t *testing.T, root *os.Root) {
			edit(t, root, func(v *evidence.Verdict) { v.EvidenceSummary.Counts.Passed = 99 })
		}, "ExecutionVerdict.json is not what follows from the evidence"},
		"gates that do not follow": {func(t *testing.T, root *os.Root) {
			require.NoError(t, evidence.Write(root, evidence.GatesFile, evidence.Gates{Offline: true, Commands: []evidence.GateCommand{{Cmd: "true"}}}))
		}, "GATES.json is not what follows from the evidence"},
		"a failure made a pass": {func(t *testing.T, root *os.Root) {
			var tests evidence.Tests
			require.NoError(t, evidence.Read(root, evidence.TestsFile, maxEnvelope, &tests))
			tests.Commands[0].Counts = &evidence.Counts{Total: 2, Passed: 1, Failed: 1}
			require.NoError(t, evidence.Write(root, evidence.TestsFile, tests))
			reseal(t, root)
			edit(t, root, func(v *evidence.Verdict) {
				v.Status, v.StopReason, v.StopClass, v.Findings = evidence.Pass, evidence.ReasonPass, "PASS", nil
			})
		}, "ExecutionVerdict.json is not what follows from the evidence"},
	} {
		t.Run(name, func(t *testing.T) {
			root := gateDir(t, "2 passed\n")
			c.change(t, root)
			err := Sign(t.Context(), root, key.private)
			var invalid *InvalidError
			require.ErrorAs(t, err, &invalid)
			require.ErrorContains(t, err, c.want)
			_, err = root.Lstat(evidence.AttestationFile)
			assert.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
}

func TestKeys(t *testing.T) {
	ed := newEd25519(t)
	_, p384 := newECDSA(t, elliptic.P384())
	_, weak := newRSA(t, 1024)
	exchange, err := ecdh.X25519().GenerateKey(rand.Reader)
	require.NoError(t, err)
	x25519 := pairOf(t, exchange, exchange.Public())
	encrypted := block("ENCRYPTED PRIVATE KEY", []byte("x"))
	old := []byte("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n")
	const unusable = "is not one key of Ed25519, ECDSA P-256 or RSA with 2048 to 8192 bits, without a password"
	for name, c := range map[string]struct {
		private, public []byte // one of them
		want, hint      string
	}{
		"empty":                {private: []byte{}, want: "is not PEM", hint: "openssl genpkey"},
		"text":                 {private: []byte("hello"), want: "is not PEM", hint: "openssl genpkey"},
		"cut":                  {private: ed.private[:len(ed.private)/2], want: "is not PEM"},
		"too large":            {private: make([]byte, MaxKey+1), want: "has more than"},
		"public for signing":   {private: ed.public, want: "is a public key", hint: "openssl genpkey"},
		"private for checking": {public: ed.private, want: "is a private key", hint: "-pubout"},
		"damaged":              {private: block("PRIVATE KEY", []byte("x")), want: unusable},
		"encrypted":            {private: encrypted, want: unusable, hint: "openssl genpkey"},
		"encrypted, old":       {private: old, want: unusable},
		"X25519":               {private: x25519.private, want: unusable},
		"X25519, public":       {public: x25519.public, want: unusable},
		"P-384":                {private: p384.private, want: unusable},
		"P-384, public":        {public: p384.public, want: unusable},
		"weak RSA":             {private: weak.private, want: unusable},
		"weak RSA, public":     {public: weak.public, want: unusable},
		"a certificate":        {public: block("CERTIFICATE", []byte("x")), want: unusable, hint: "-pubout"},
		"OpenSSH":              {private: block("OPENSSH PRIVATE KEY", []byte("x")), want: unusable},
		"two keys":             {private: append(append([]byte{}, ed.private...), ed.private...), want: unusable},
		"something else":       {public: block("X509 CRL", []byte("x")), want: unusable},
	} {
		t.Run(name, func(t *testing.T) {
			root := gateDir(t, "2 passed\n")
			var err error
			if c.public == nil {
				err = Sign(t.Context(), root, c.private)
			} else {
				err = Verify(t.Context(), root, c.public)
			}
			var bad *KeyError
			require.ErrorAs(t, err, &bad)
			assert.Contains(t, bad.Error(), c.want)
			assert.Contains(t, bad.Hint(), c.hint)
			assert.NotEmpty(t, bad.Hint())
			assert.NoFileExists(t, filepath.Join(root.Name(), evidence.AttestationFile))
		})
	}
}

func TestVerifyCanceled(t *testing.T) {
	root, key := gateDir(t, "2 passed\n"), newEd25519(t)
	require.NoError(t, Sign(t.Context(), root, key.private))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, Verify(ctx, root, key.public), context.Canceled)
}

func FuzzVerify(f *testing.F) {
	f.Add([]byte(`{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"keyid":"","sig":"AA=="}]}`))
	f.Add([]byte(`{"payloadType":"application/vnd.in-toto+json","payload":"","signatures":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		root, err := os.OpenRoot(t.TempDir())
		require.NoError(t, err)
		defer root.Close()
		require.NoError(t, evidence.WriteText(root, evidence.AttestationFile, text))
		assert.Error(t, Verify(t.Context(), root, newEd25519(t).public))
	})
}
