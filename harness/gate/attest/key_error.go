package attest

import "fmt"

// A KeyError is a key that cannot be used. Its text never holds any of the key.
type KeyError struct {
	// Rule says what is wrong with it.
	Rule string
	hint string
}

func (e *KeyError) Error() string { return e.Rule }

// Hint says how to make a key that can be used.
func (e *KeyError) Hint() string { return e.hint }

const (
	hintPrivate = "make one with: openssl genpkey -algorithm ed25519 -out gate.key"
	hintPublic  = "get the public key of a private one with: openssl pkey -in gate.key -pubout -out gate.pub"
	hintPlain   = "write it without a password, for its owner only, with: umask 077; openssl pkey -in gate.key -out plain.key"
)

func keyError(hint, format string, args ...any) error {
	return &KeyError{Rule: fmt.Sprintf(format, args...), hint: hint}
}
