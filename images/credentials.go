package images

import (
	"fmt"
	"os/exec"

	"github.com/docker/cli/cli/config"
	"github.com/docker/docker/api/types/registry"
)

// Credentials returns what a registry wants to know of its user, the zero value
// for nothing. The host is as in a reference: docker.io, or host[:port]. What it
// returns goes to the engine with the one request that needs it, and nowhere else;
// its errors must not hold secrets.
type Credentials func(host string) (registry.AuthConfig, error)

// dockerHub is how Docker's configuration calls the registry of names without a
// host.
const dockerHub = "https://index.docker.io/v1/"

// DockerCredentials are those of Docker's configuration in a folder, where docker
// login keeps them: in config.json, or in the credential store or helper that it
// names. The empty folder means $DOCKER_CONFIG, or else ~/.docker. The
// configuration is read anew for each registry.
func DockerCredentials(dir string) Credentials {
	return func(host string) (registry.AuthConfig, error) {
		file, err := config.Load(dir)
		if err != nil {
			return registry.AuthConfig{}, fmt.Errorf("the Docker configuration cannot be read: %w", err)
		}
		key := host
		if host == "docker.io" || host == "index.docker.io" {
			key = dockerHub
		}
		found, err := file.GetAuthConfig(key)
		if err != nil {
			helper := file.CredentialsStore
			if own, ok := file.CredentialHelpers[key]; ok {
				helper = own
			}
			if _, missing := exec.LookPath("docker-credential-" + helper); helper != "" && missing != nil {
				return registry.AuthConfig{}, fmt.Errorf("the credential helper of the Docker configuration for %s, docker-credential-%s, is not there", host, helper)
			}
			// Without the text of the error: a helper may have said anything.
			return registry.AuthConfig{}, fmt.Errorf("the credential store of the Docker configuration failed for %s", host)
		}
		return registry.AuthConfig{
			Username: found.Username, Password: found.Password, Auth: found.Auth,
			ServerAddress: found.ServerAddress, IdentityToken: found.IdentityToken, RegistryToken: found.RegistryToken,
		}, nil
	}
}
