package pull

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What engines say: Docker 20.10, Docker 29 with its own store, Docker 29 with the
// store of containerd.
func TestPullReason(t *testing.T) {
	for _, c := range []struct {
		said string
		want Kind
	}{
		{"manifest for registry.example/x@sha256:00 not found: manifest unknown: manifest unknown", DigestMissing},
		{"failed to resolve reference \"registry.example/x@sha256:00\": registry.example/x@sha256:00: not found", DigestMissing},
		{"name unknown: repository name not known to registry", DigestMissing},

		{`Get "http://127.0.0.1:5000/v2/": dial tcp 127.0.0.1:5000: connect: connection refused`, RegistryUnavailable},
		{`Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io on 10.0.0.1:53: no such host`, RegistryUnavailable},
		{`Get "https://r/v2/": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)`, RegistryUnavailable},
		{`failed to do request: Head "https://r/v2/x/manifests/sha256:00": dial tcp 10.0.0.1:443: i/o timeout`, RegistryUnavailable},
		{"toomanyrequests: You have reached your pull rate limit.", RegistryUnavailable},
		{`Get "https://r/v2/": x509: certificate signed by unknown authority`, RegistryUnavailable},
		{"received unexpected HTTP status: 503 Service Unavailable", RegistryUnavailable},

		{`Get "http://127.0.0.1:5000/v2/x/manifests/sha256:00": no basic auth credentials`, CredentialsRefused},
		{"unauthorized: authentication required", CredentialsRefused},
		{"pull access denied for x, repository does not exist or may require 'docker login': denied: requested access to the resource is denied", CredentialsRefused},
		{"unexpected status from HEAD request to http://r/v2/x/manifests/sha256:00: 403 Forbidden", CredentialsRefused},
		{"failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized", CredentialsRefused},

		{"error pulling image configuration: download failed after attempts=6: EOF", Interrupted},
		{"unexpected EOF", Interrupted},
		{"EOF", Interrupted},
		{"failed to copy: httpReadSeeker: failed open: read tcp 1.2.3.4:1->5.6.7.8:2: read: connection reset by peer", Interrupted},
		{"filesystem layer verification failed for digest sha256:00", Interrupted},
		{"failed commit on ref \"layer-sha256:00\": unexpected commit size 5, expected 10: failed precondition", Interrupted},

		{"no matching manifest for linux/s390x in the manifest list entries", WrongPlatform},
		{"no match for platform in manifest sha256:00: not found", WrongPlatform},
		{"image operating system \"windows\" cannot be used on this platform: operating system is not supported", WrongPlatform},

		{"no space left on device", Unknown},
	} {
		assert.Equal(t, c.want, kindOf(errors.New(c.said)), c.said)
		assert.Equal(t, c.want, kindOf(fmt.Errorf("Error response from daemon: %s", c.said)), c.said)
	}
	assert.Equal(t, DigestMissing, kindOf(fmt.Errorf("of any words: %w", errdefs.ErrNotFound)))
	assert.Equal(t, CredentialsRefused, kindOf(fmt.Errorf("of any words: %w", errdefs.ErrUnauthenticated)))
}

func TestPullErrorIsBoundedAndHinted(t *testing.T) {
	for _, kind := range []Kind{
		Unknown, DigestMissing, RegistryUnavailable, CredentialsRefused, Interrupted, WrongPlatform,
	} {
		err := pullFailed(t.Context(), "python@"+toolsDigest, errors.New(strings.Repeat("é", 10_000)))
		var pull *Error
		require.ErrorAs(t, err, &pull)
		pull.Kind = kind
		assert.Less(t, len(pull.Error()), 1300)
		assert.NotEmpty(t, pull.Hint())
	}
	assert.Contains(t, (&Error{Ref: "python@" + toolsDigest, Kind: CredentialsRefused}).Hint(), "docker login docker.io")
}
