package web

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Bounds of a secret, in bytes. A shorter one would be found everywhere in an answer, and is
// more likely a mistake than a secret.
const (
	minSecret = 4
	maxSecret = 16 << 10
)

// credentials are the secrets of one call.
type credentials struct {
	// header carries value, if value is not empty. An access token of OAuth becomes the value
	// later.
	header, value string
	// clientID and clientSecret are those of OAuth.
	clientID, clientSecret string
}

// credentials reads the secrets of a call, and adds them to the redactor.
func (r Request) credentials(hide *redactor) (credentials, error) {
	have := credentials{header: r.API.keyHeader()}
	var err error
	switch r.API.method() {
	case AuthAPIKey:
		have.value, err = r.secret("auth.token", r.API.token(r.AdapterID), hide)
	case AuthBearer:
		have.value, err = r.secret("auth.token", r.API.token(r.AdapterID), hide)
		have.value = "Bearer " + have.value
	case AuthOAuth:
		if have.clientID, err = r.secret("auth.client_id", r.API.Auth.ClientID, &redactor{}); err != nil {
			break
		}
		have.clientSecret, err = r.secret("auth.client_secret", r.API.Auth.ClientSecret, hide)
	}
	return have, err
}

// secret reads one secret.
func (r Request) secret(field string, ref SecretRef, hide *redactor) (string, error) {
	value, rule := r.lookUp(ref)
	if rule == "" {
		rule = secretRule(value)
	}
	if rule != "" {
		return "", &SecretError{Field: field, Ref: ref, Rule: rule}
	}
	hide.add(value)
	return value, nil
}

// secretRule says why a value cannot be a secret; empty if it can.
func secretRule(value string) string {
	switch {
	case value == "":
		return "is empty"
	case len(value) < minSecret || len(value) > maxSecret:
		return fmt.Sprintf("must have %d to %d bytes", minSecret, maxSecret)
	case strings.TrimSpace(value) != value || !httpguts.ValidHeaderFieldValue(value):
		return "must be one line without spaces around it and without control characters"
	}
	return ""
}

// lookUp returns the value of a reference, or why there is none. The line end of a file is not
// part of the value.
func (r Request) lookUp(ref SecretRef) (value, rule string) {
	if ref.File == "" {
		lookUp := r.LookupEnv
		if lookUp == nil {
			lookUp = os.LookupEnv
		}
		value, found := lookUp(ref.Env)
		if !found {
			return "", "is not set"
		}
		return value, ""
	}
	content, err := fsx.Read(ref.File, maxSecret+2)
	if err != nil {
		return "", "cannot be read: " + fsx.Cause(err).Error()
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(content), "\n"), "\r"), ""
}
