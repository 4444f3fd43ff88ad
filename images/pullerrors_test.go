package images

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
		want error
	}{
		{"manifest for registry.example/x@sha256:00 not found: manifest unknown: manifest unknown", ErrDigestMissing},
		{"failed to resolve reference \"registry.example/x@sha256:00\": registry.example/x@sha256:00: not found", ErrDigestMissing},
		{"name unknown: repository name not known to registry", ErrDigestMissing},

		{`Get "http://127.0.0.1:5000/v2/": dial tcp 127.0.0.1:5000: connect: connection refused`, ErrRegistryUnavailable},
		{`Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io on 10.0.0.1:53: no such host`, ErrRegistryUnavailable},
		{`Get "https://r/v2/": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)`, ErrRegistryUnavailable},
		{`failed to do request: Head "https://r/v2/x/manifests/sha256:00": dial tcp 10.0.0.1:443: i/o timeout`, ErrRegistryUnavailable},
		{"toomanyrequests: You have reached your pull rate limit.", ErrRegistryUnavailable},
		{`Get "https://r/v2/": x509: certificate signed by unknown authority`, ErrRegistryUnavailable},
		{"received unexpected HTTP status: 503 Service Unavailable", ErrRegistryUnavailable},

		{`Get "http://127.0.0.1:5000/v2/x/manifests/sha256:00": no basic auth credentials`, ErrCredentialsRefused},
		{"unauthorized: authentication required", ErrCredentialsRefused},
		{"pull access denied for x, repository does not exist or may require 'docker login': denied: requested access to the resource is denied", ErrCredentialsRefused},
		{"unexpected status from HEAD request to http://r/v2/x/manifests/sha256:00: 403 Forbidden", ErrCredentialsRefused},
		{"failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized", ErrCredentialsRefused},

		{"error pulling image configuration: download failed after attempts=6: EOF", ErrPullInterrupted},
		{"unexpected EOF", ErrPullInterrupted},
		{"EOF", ErrPullInterrupted},
		{"failed to copy: httpReadSeeker: failed open: read tcp 1.2.3.4:1->5.6.7.8:2: read: connection reset by peer", ErrPullInterrupted},
		{"filesystem layer verification failed for digest sha256:00", ErrPullInterrupted},
		{"failed commit on ref \"layer-sha256:00\": unexpected commit size 5, expected 10: failed precondition", ErrPullInterrupted},

		{"no matching manifest for linux/s390x in the manifest list entries", ErrWrongPlatform},
		{"no match for platform in manifest sha256:00: not found", ErrWrongPlatform},
		{"image operating system \"windows\" cannot be used on this platform: operating system is not supported", ErrWrongPlatform},

		{"no space left on device", nil},
	} {
		assert.Equal(t, c.want, pullReason(errors.New(c.said)), c.said)
		assert.Equal(t, c.want, pullReason(fmt.Errorf("Error response from daemon: %s", c.said)), c.said)
	}
	assert.Equal(t, ErrDigestMissing, pullReason(fmt.Errorf("of any words: %w", errdefs.ErrNotFound)))
	assert.Equal(t, ErrCredentialsRefused, pullReason(fmt.Errorf("of any words: %w", errdefs.ErrUnauthenticated)))
}

func TestPullErrorIsBoundedAndHinted(t *testing.T) {
	for _, reason := range []error{
		nil, ErrDigestMissing, ErrRegistryUnavailable, ErrCredentialsRefused, ErrPullInterrupted, ErrWrongPlatform,
	} {
		err := pullFailed(t.Context(), "python@"+toolsDigest, errors.New(strings.Repeat("é", 10_000)))
		var pull *PullError
		require.ErrorAs(t, err, &pull)
		pull.Reason = reason
		assert.Less(t, len(pull.Error()), 1300)
		assert.NotEmpty(t, pull.Hint())
	}
	assert.Contains(t, (&PullError{Ref: "python@" + toolsDigest, Reason: ErrCredentialsRefused}).Hint(), "docker login docker.io")
}
