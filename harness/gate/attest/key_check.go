package attest

// CheckKey says whether [Sign] can use a private key; the error is a [*KeyError].
func CheckKey(text []byte) error {
	_, err := signer(text)
	return err
}

// CheckPublicKey says whether [Verify] can use a public key; the error is a [*KeyError].
func CheckPublicKey(text []byte) error {
	_, err := verifier(text)
	return err
}
