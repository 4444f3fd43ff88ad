package attest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
)

// MaxKey bounds the file of a key in bytes.
const MaxKey = 64 << 10

const (
	minRSA = 2048
	// maxRSA bounds what a check of a signature costs.
	maxRSA = 8192
)

// signer makes a signer of a private key in PEM: PKCS #8, or what older versions of
// OpenSSL write for RSA and EC.
func signer(text []byte) (dsse.SignerVerifier, error) {
	block, err := keyBlock(text, hintPrivate)
	if err != nil {
		return nil, err
	}
	var key any
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "PUBLIC KEY", "RSA PUBLIC KEY":
		return nil, keyError(hintPrivate, "is a public key, and signing needs the private one")
	default:
		return nil, wrongBlock(block.Type, hintPrivate)
	}
	if err != nil {
		// The library's error may quote bytes of the key.
		return nil, keyError(hintPrivate, "is not a private key that can be read: its content is damaged, or of an unknown kind")
	}
	private, ok := key.(crypto.Signer)
	if !ok {
		return nil, keyError(hintPrivate, "is of a kind that cannot sign (%T)", key)
	}
	if err := usable(private.Public(), hintPrivate); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, keyError(hintPrivate, "cannot be used")
	}
	return provider(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// verifier makes a verifier of a public key in PEM (PKIX).
func verifier(text []byte) (dsse.SignerVerifier, error) {
	block, err := keyBlock(text, hintPublic)
	if err != nil {
		return nil, err
	}
	var key any
	switch {
	case block.Type == "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case block.Type == "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case strings.HasSuffix(block.Type, "PRIVATE KEY"):
		return nil, keyError(hintPublic, "is a private key, and verifying needs the public one: keep the private key to yourself")
	default:
		return nil, wrongBlock(block.Type, hintPublic)
	}
	if err != nil {
		return nil, keyError(hintPublic, "is not a public key that can be read: its content is damaged, or of an unknown kind")
	}
	if err := usable(key, hintPublic); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, keyError(hintPublic, "cannot be used")
	}
	return provider(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// keyBlock finds the one key in a text. Parameters, which OpenSSL writes before an EC
// key, are passed over; a second key would leave open which one is meant.
func keyBlock(text []byte, hint string) (*pem.Block, error) {
	if len(text) > MaxKey {
		return nil, keyError(hint, "has more than %d bytes", MaxKey)
	}
	var found *pem.Block
	for rest := text; ; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		switch {
		case block == nil && found == nil && bytes.Contains(text, []byte("-----BEGIN")):
			return nil, keyError(hint, "is damaged PEM: lines are missing or changed")
		case block == nil && found == nil:
			return nil, keyError(hint, "is not PEM: it has no line -----BEGIN … KEY-----")
		case block == nil:
			return found, nil
		case block.Type == "EC PARAMETERS":
			continue
		case found != nil:
			return nil, keyError(hint, "has more than one key or certificate")
		case block.Type == "ENCRYPTED PRIVATE KEY", strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
			return nil, keyError(hintPlain, "is encrypted with a password, which is not supported")
		}
		found = block
	}
}

func wrongBlock(kind, hint string) error {
	switch kind {
	case "OPENSSH PRIVATE KEY":
		return keyError(hint, "is a key of OpenSSH, and must be PEM as openssl genpkey writes it")
	case "CERTIFICATE":
		return keyError("openssl x509 -in CERTIFICATE -pubkey -noout prints its public key", "is a certificate, and must be a key")
	}
	return keyError(hint, "is %.40q in PEM, and must be a key", kind)
}

// usable refuses kinds of keys that are not among ours, or too weak.
func usable(key any, hint string) error {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return nil
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return keyError(hint, "is on the curve %s; of ECDSA only P-256 can be used", key.Curve.Params().Name)
		}
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSA || bits > maxRSA {
			return keyError(hint, "has %d bits; RSA must have %d to %d", bits, minRSA, maxRSA)
		}
		return nil
	}
	return keyError(hint, "is of an unsupported kind (%T); Ed25519, ECDSA P-256 and RSA can be used", key)
}

// provider makes of a key that is known to be usable what signs and verifies.
func provider(text []byte) (dsse.SignerVerifier, error) {
	key, err := signerverifier.LoadKey(text)
	if err != nil {
		return nil, keyError("", "cannot be used: %v", err)
	}
	switch key.KeyType {
	case signerverifier.ED25519KeyType:
		return signerverifier.NewED25519SignerVerifierFromSSLibKey(key)
	case signerverifier.ECDSAKeyType:
		return signerverifier.NewECDSASignerVerifierFromSSLibKey(key)
	case signerverifier.RSAKeyType:
		return signerverifier.NewRSAPSSSignerVerifierFromSSLibKey(key)
	}
	return nil, keyError("", "is of the unsupported kind %q", key.KeyType)
}
