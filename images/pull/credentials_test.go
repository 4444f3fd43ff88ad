package pull

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/docker/docker/api/types/registry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDockerCredentials(t *testing.T) {
	dir := t.TempDir()
	// "alice:secret" and "bob:secret", as docker login writes them.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"auths": {
		"https://index.docker.io/v1/": {"auth": "YWxpY2U6c2VjcmV0"},
		"registry.example:5000": {"auth": "Ym9iOnNlY3JldA=="},
		"token.example": {"identitytoken": "t"}
	}}`), 0o600))
	for host, want := range map[string]registry.AuthConfig{
		"docker.io":             {Username: "alice", Password: "secret", ServerAddress: "https://index.docker.io/v1/"},
		"registry.example:5000": {Username: "bob", Password: "secret", ServerAddress: "registry.example:5000"},
		"token.example":         {IdentityToken: "t", ServerAddress: "token.example"},
		"other.example":         {},
	} {
		got, err := DockerCredentials(dir)(host)
		require.NoError(t, err)
		assert.Equal(t, want, got, host)
	}

	t.Setenv("DOCKER_AUTH_CONFIG", "")
	none, err := DockerCredentials(t.TempDir())("docker.io")
	require.NoError(t, err)
	assert.Empty(t, none)
}

func TestDockerCredentialsFailures(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte("{"), 0o600))
	_, err := DockerCredentials(dir)("docker.io")
	require.ErrorContains(t, err, "Docker configuration cannot be read")

	if runtime.GOOS == "windows" {
		return // a helper is a program, which a shell script is not there
	}
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "docker-credential-broken"), []byte("#!/bin/sh\necho password=hunter2\nexit 1\n"), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"credsStore": "broken"}`), 0o600))
	_, err = DockerCredentials(dir)("registry.example")
	require.ErrorContains(t, err, "credential store of the Docker configuration failed for registry.example")
	assert.NotContains(t, err.Error(), "hunter2")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"credHelpers": {"registry.example": "nowhere"}}`), 0o600))
	_, err = DockerCredentials(dir)("registry.example")
	require.ErrorContains(t, err, "for registry.example, docker-credential-nowhere, is not there")
}
