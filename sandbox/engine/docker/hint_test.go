package docker

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
)

func TestConnectionErrorHint(t *testing.T) {
	const cannot = "Cannot connect to the Docker daemon at "
	for text, want := range map[string]string{
		"dial unix: no such file":                          "is the engine running? see",
		cannot + "unix:///var/run/docker.sock. Is it":      "systemctl start docker",
		cannot + "unix:///x. Is the docker daemon running": "nothing answers at that socket",
		cannot + "tcp://lab:9. Is the daemon running":      "host and port",
	} {
		require.Contains(t, (&connectionError{engine.ErrUnavailable, errors.New(text)}).Hint(), want, text)
		require.Contains(t, (&connectionError{engine.ErrPermission, errors.New(text)}).Hint(), "docker group")
	}
}
