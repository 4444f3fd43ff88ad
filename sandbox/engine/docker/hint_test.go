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
		"dial unix: no such file": "is the engine running? see",
		cannot + "unix:///var/run/docker.sock. Is the docker daemon running?": "systemctl start docker",
		cannot + "unix:///x. Is the docker daemon running?":                   "start the engine of that socket",
		cannot + "tcp://lab:9. Is the docker daemon running?":                 "can be reached",
	} {
		require.Contains(t, (&connectionError{engine.ErrUnavailable, errors.New(text)}).Hint(), want, text)
		require.Contains(t, (&connectionError{engine.ErrPermission, errors.New(text)}).Hint(), "docker group")
	}
	for text, want := range map[string]string{
		cannot + "unix:///x. Is the docker daemon running?": "container engine unavailable: nothing answers at unix:///x",
		`permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get "http://x/v1.41/info": dial unix /var/run/docker.sock: connect: permission denied`: "permission denied at unix:///var/run/docker.sock",
	} {
		require.EqualError(t, &connectionError{engine.ErrUnavailable, errors.New(text)}, want)
	}
}
