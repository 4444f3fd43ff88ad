package attest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
)

// MaxKey bounds the file of a key in bytes.
const MaxKey = 64 << 10

// A KeyError is a key that cannot be used. Its text has nothing of the key.
type KeyError struct {
	Rule    string
	private bool
}

func (e *KeyError) Error() string { return e.Rule }

// Hint says how to create a key that can be used.
func (e *KeyError) Hint() string {
	if e.private {
		return "create one with: openssl genpkey -algorithm ed25519 -out gate.key"
	}
	return "get the public key of a private one with: openssl pkey -in gate.key -pubout -out gate.pub"
}

// CheckKey reports whether [Sign] can use a private key in PEM without a password:
// Ed25519, ECDSA P-256 (signs SHA-256), or RSA of 2048 to 8192 bits (RSA-PSS with SHA-256).
// The error is a [*KeyError].
func CheckKey(text []byte) error {
	_, err := loadKey(text, true)
	return err
}

// CheckPublicKey reports whether [Verify] can use a public key. The error is a
// [*KeyError].
func CheckPublicKey(text []byte) error {
	_, err := loadKey(text, false)
	return err
}

// loadKey reads the one key in a PEM text. OpenSSL writes parameters before an EC key.
func loadKey(text []byte, private bool) (dsse.SignerVerifier, error) {
	refuse := func(rule string) (dsse.SignerVerifier, error) { return nil, &KeyError{rule, private} }
	if len(text) > MaxKey {
		return refuse(fmt.Sprintf("has more than %d bytes", MaxKey))
	}
	block, rest := pem.Decode(text)
	if block != nil && block.Type == "EC PARAMETERS" {
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return refuse("is not PEM: it has no whole block from -----BEGIN … KEY----- to its END")
	}
	switch isPrivate := strings.HasSuffix(block.Type, "PRIVATE KEY"); {
	case private && !isPrivate && strings.HasSuffix(block.Type, "PUBLIC KEY"):
		return refuse("is a public key, and signing needs the private one")
	case !private && isPrivate:
		return refuse("is a private key, and verifying needs the public one")
	}
	der, err := usableKey(block.Bytes, private)
	if second, _ := pem.Decode(rest); err != nil || second != nil {
		// The error of the library can have bytes of the key.
		return refuse("is not one key of Ed25519, ECDSA P-256 or RSA with 2048 to 8192 bits, without a password")
	}
	key, err := signerverifier.LoadKey(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: der}))
	if err != nil {
		return nil, err
	}
	switch key.KeyType {
	case signerverifier.ED25519KeyType:
		return signerverifier.NewED25519SignerVerifierFromSSLibKey(key)
	case signerverifier.ECDSAKeyType:
		return signerverifier.NewECDSASignerVerifierFromSSLibKey(key)
	}
	return signerverifier.NewRSAPSSSignerVerifierFromSSLibKey(key)
}

// usableKey returns a key in PKCS #8 or PKIX, if it is of a supported kind.
func usableKey(der []byte, private bool) ([]byte, error) {
	var key, public any
	var err error
	if private {
		if key, err = x509.ParsePKCS8PrivateKey(der); err != nil {
			if key, err = x509.ParseECPrivateKey(der); err != nil {
				key, err = x509.ParsePKCS1PrivateKey(der)
			}
		}
	} else if key, err = x509.ParsePKIXPublicKey(der); err != nil {
		key, err = x509.ParsePKCS1PublicKey(der)
	}
	if err != nil {
		return nil, err
	}
	public = key
	if signer, ok := key.(crypto.Signer); ok {
		public = signer.Public()
	}
	usable := false
	switch k := public.(type) {
	case ed25519.PublicKey:
		usable = true
	case *ecdsa.PublicKey:
		usable = k.Curve == elliptic.P256()
	case *rsa.PublicKey:
		usable = k.N.BitLen() >= 2048 && k.N.BitLen() <= 8192 // the cost of a check is bounded
	}
	switch {
	case !usable:
		return nil, fmt.Errorf("a key of the type %T is not supported", public)
	case private:
		return x509.MarshalPKCS8PrivateKey(key)
	}
	return x509.MarshalPKIXPublicKey(key)
}
