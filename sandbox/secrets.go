package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
)

// maxSecretFile bounds a file with a secret, in bytes. A variable has less room.
const maxSecretFile = 1 << 20

// readSecrets reads the values of the secrets of a request, as NAME=value. No error contains a
// value.
func readSecrets(secrets []Secret) ([]string, error) {
	var pairs []string
	var errs []error
	for _, secret := range secrets {
		value, err := secretValue(secret)
		if err == nil {
			err = errors.Join(policy.CheckEnv(map[string]string{secret.Name: value})...)
		}
		if err != nil {
			errs = append(errs, secretError(secret, err))
		}
		pairs = append(pairs, secret.Name+"="+value)
	}
	return pairs, errors.Join(errs...)
}

func secretValue(secret Secret) (string, error) {
	if secret.File == "" {
		value, ok := os.LookupEnv(secret.Name)
		if !ok {
			return "", errors.New("the caller has no such variable")
		}
		return value, nil
	}
	text, err := fsx.Read(secret.File, maxSecretFile)
	if err != nil {
		// Without its name: a caller who gives the value in place of the file did not mean to
		// show it.
		return "", fmt.Errorf("its file cannot be read: %w", fsx.Cause(err))
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r"), nil
}

func secretError(secret Secret, err error) error {
	return &policy.FieldError{Field: "secret", Value: fmt.Sprintf("%q", secret.Name), Rule: policy.RuleOf(err),
		Hint: "set the variable for this command, or name a file: --secret NAME=FILE"}
}
