package dockerhost

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	dcontext "github.com/docker/cli/cli/context"
	"github.com/docker/cli/cli/context/docker"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// dockerConfig creates a Docker configuration with some contexts, using the docker
// command itself, and a config.json.
func dockerConfig(t *testing.T, configJSON string) string {
	t.Helper()
	dir := t.TempDir()
	for name, host := range map[string]string{"lab": "ssh://me@lab.example.com", "near": "unix:///run/near.sock", "naked": "tcp://10.9.8.7:2375",
		"blind": "tcp://10.9.8.7:2376,skip-tls-verify=true"} {
		create := exec.Command("docker", "context", "create", name, "--docker", "host="+host)
		create.Env = append(os.Environ(), "DOCKER_CONFIG="+dir)
		out, err := create.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	if configJSON != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(configJSON), 0o600))
	}
	return dir
}

// TestFindAsDocker compares every choice with that of the docker command.
func TestFindAsDocker(t *testing.T) {
	plain, uses := dockerConfig(t, ""), dockerConfig(t, `{"currentContext": "near"}`)
	lost := dockerConfig(t, `{"currentContext": "nosuch"}`)
	certs := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(certs, "ca.pem"), []byte("any"), 0o600))
	type env = map[string]string
	tests := map[string]struct {
		dir string
		env env
		at  Address
		// context and host are the expected values; both empty for a refusal.
		context, host, from string
	}{
		"nothing":                      {plain, nil, Address{}, "default", "unix:///var/run/docker.sock", ""},
		"DOCKER_HOST":                  {plain, env{"DOCKER_HOST": "unix:///x"}, Address{}, "default", "unix:///x", "DOCKER_HOST"},
		"DOCKER_HOST of spaces":        {plain, env{"DOCKER_HOST": " "}, Address{}, "default", "unix:///var/run/docker.sock", "DOCKER_HOST"},
		"DOCKER_HOST before all":       {uses, env{"DOCKER_HOST": "unix:///x", "DOCKER_CONTEXT": "lab"}, Address{}, "default", "unix:///x", "DOCKER_HOST"},
		"DOCKER_CONTEXT":               {plain, env{"DOCKER_CONTEXT": "lab"}, Address{}, "lab", "ssh://me@lab.example.com", "DOCKER_CONTEXT"},
		"DOCKER_CONTEXT before file":   {uses, env{"DOCKER_CONTEXT": "lab"}, Address{}, "lab", "ssh://me@lab.example.com", "DOCKER_CONTEXT"},
		"current context":              {uses, nil, Address{}, "near", "unix:///run/near.sock", "config.json"},
		"empty variables":              {uses, env{"DOCKER_HOST": "", "DOCKER_CONTEXT": ""}, Address{}, "near", "unix:///run/near.sock", "config.json"},
		"unknown current context":      {lost, nil, Address{}, "", "", ""},
		"unknown DOCKER_CONTEXT":       {plain, env{"DOCKER_CONTEXT": "nosuch"}, Address{}, "", "", ""},
		"DOCKER_CONTEXT default":       {uses, env{"DOCKER_CONTEXT": "default"}, Address{}, "default", "unix:///var/run/docker.sock", "DOCKER_CONTEXT"},
		"--context":                    {uses, env{"DOCKER_HOST": "unix:///x"}, Address{Context: "lab"}, "lab", "ssh://me@lab.example.com", ""},
		"--context default":            {uses, env{"DOCKER_HOST": "unix:///x"}, Address{Context: "default"}, "default", "unix:///x", "DOCKER_HOST"},
		"--context nosuch":             {uses, env{"DOCKER_HOST": "unix:///x"}, Address{Context: "nosuch"}, "", "", ""},
		"--host":                       {uses, env{"DOCKER_HOST": "unix:///x", "DOCKER_CONTEXT": "lab"}, Address{Host: "unix:///y"}, "default", "unix:///y", ""},
		"--host and --context":         {uses, nil, Address{Host: "unix:///y", Context: "lab"}, "", "", ""},
		"address without port":         {plain, env{"DOCKER_HOST": "tcp://localhost"}, Address{}, "default", "tcp://localhost:2375", "DOCKER_HOST"},
		"address of nothing":           {plain, env{"DOCKER_HOST": "tcp://"}, Address{}, "default", "tcp://localhost:2375", "DOCKER_HOST"},
		"IPv6":                         {plain, env{"DOCKER_HOST": "tcp://[::1]:1"}, Address{}, "default", "tcp://[::1]:1", "DOCKER_HOST"},
		"unknown scheme":               {plain, env{"DOCKER_HOST": "gopher://x"}, Address{}, "", "", ""},
		"TLS without a host":           {plain, env{"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": certs}, Address{}, "default", "tcp://localhost:2376", ""},
		"TLS without certificates":     {plain, env{"DOCKER_TLS_VERIFY": "1"}, Address{}, "", "", ""},
		"certificates alone mean none": {plain, env{"DOCKER_HOST": "tcp://localhost:1", "DOCKER_CERT_PATH": certs}, Address{}, "default", "tcp://localhost:1", "DOCKER_HOST"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			args := []string{"context", "inspect", "--format", "{{.Name}} {{.Endpoints.docker.Host}}"}
			if test.at.Host != "" {
				args = append([]string{"--host", test.at.Host}, args...)
			}
			if test.at.Context != "" {
				args = append([]string{"--context", test.at.Context}, args...)
			}
			inspect := exec.Command("docker", args...)
			inspect.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "DOCKER_CONFIG=" + test.dir}
			for variable, value := range test.env {
				inspect.Env = append(inspect.Env, variable+"="+value)
			}
			out, dockerErr := inspect.Output()

			got, err := find(test.at, func(name string) string { return test.env[name] }, test.dir)
			if test.host == "" {
				require.ErrorIs(t, err, engine.ErrUnavailable)
				require.Error(t, dockerErr, "docker finds %s", out)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.context+" "+test.host, got.Context+" "+got.Host)
			assert.Equal(t, test.from, strings.TrimPrefix(got.From, test.dir+"/"))
			require.NoError(t, dockerErr)
			assert.Equal(t, strings.TrimSpace(string(out)), got.Context+" "+got.Host)
		})
	}
}

// TestFindRefuses checks that dangerous or unclear settings are refused, with a
// reason on one line.
func TestFindRefuses(t *testing.T) {
	contexts := dockerConfig(t, "")
	broken, unreadable, halfContext := dockerConfig(t, `{"currentContext": `), dockerConfig(t, ""), dockerConfig(t, "")
	require.NoError(t, os.Mkdir(filepath.Join(unreadable, "config.json"), 0o700))
	metas, err := filepath.Glob(filepath.Join(halfContext, "contexts/meta/*/meta.json"))
	require.NoError(t, err)
	require.NotEmpty(t, metas)
	for _, meta := range metas {
		require.NoError(t, os.WriteFile(meta, []byte("{"), 0o600))
	}
	certs := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(certs, "ca.pem"), []byte("any"), 0o600))
	type env = map[string]string
	tests := map[string]struct {
		dir  string
		env  env
		at   Address
		kind Kind
		text string
	}{
		"broken configuration":     {broken, nil, Address{}, KindConfig, broken + "/config.json: unexpected EOF"},
		"unreadable configuration": {unreadable, nil, Address{Host: "unix:///x"}, KindConfig, unreadable + "/config.json: is a directory"},
		"unknown context": {contexts, env{"DOCKER_CONTEXT": "nosuch"}, Address{}, KindConfig,
			`context "nosuch": does not exist; there are default, blind, lab, naked, near (from DOCKER_CONTEXT)`},
		"broken context": {halfContext, nil, Address{Context: "lab"}, KindConfig, `context "lab": `},
		"no TLS": {contexts, env{"DOCKER_HOST": "tcp://10.9.8.7:2375"}, Address{}, KindInsecure,
			"tcp://10.9.8.7:2375: would be reached without TLS, and anyone on the way could control its machine (from DOCKER_HOST)"},
		"no TLS by name":       {contexts, nil, Address{Host: "tcp://lab.example.com:2375"}, KindInsecure, "without TLS"},
		"a name like loopback": {contexts, nil, Address{Host: "tcp://127.0.0.1.example.com:2375"}, KindInsecure, "without TLS"},
		"all addresses":        {contexts, nil, Address{Host: "tcp://0.0.0.0:2375"}, KindInsecure, "without TLS"},
		"no scheme":            {contexts, nil, Address{Host: "garbage"}, KindInsecure, "tcp://garbage:2375"},
		"no TLS, context":      {contexts, nil, Address{Context: "naked"}, KindInsecure, "tcp://10.9.8.7:2375"},
		"TLS that checks nothing": {contexts, env{"DOCKER_HOST": "tcp://10.9.8.7:2376", "DOCKER_TLS": "1", "DOCKER_CERT_PATH": certs}, Address{},
			KindInsecure, "without checking who answers"},
		"a context that checks nothing": {contexts, nil, Address{Context: "blind"}, KindInsecure, "without checking who answers"},
		"a bare path":                   {contexts, env{"DOCKER_HOST": "/run/docker.sock"}, Address{}, KindAddress, `DOCKER_HOST "/run/docker.sock": has no scheme`},
		"a descriptor":                  {contexts, env{"DOCKER_HOST": "fd://3"}, Address{}, KindAddress, `"fd" is not one of`},
		"a bad port":                    {contexts, nil, Address{Host: "tcp://me:secret@b:x"}, KindAddress, `address "tcp://me:xxxxx@b:x"`},
		"a password":                    {contexts, env{"DOCKER_HOST": "gopher://a:secret@b"}, Address{}, KindAddress, "gopher://a:xxxxx@b"},
		"no certificate":                {contexts, env{"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/no/such"}, Address{}, KindTLS, "/no/such/ca.pem"},
		"no version":                    {contexts, env{"DOCKER_API_VERSION": "new"}, Address{}, KindVersion, `DOCKER_API_VERSION "new": must be a version`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := find(test.at, func(name string) string { return test.env[name] }, test.dir)
			var refused *Error
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, test.kind, refused.Kind)
			assert.Contains(t, err.Error(), test.text)
			assert.NotContains(t, err.Error(), "\n")
			assert.NotContains(t, err.Error(), "secret")
			assert.NotEmpty(t, refused.Hint())
			require.ErrorIs(t, err, engine.ErrUnavailable)
		})
	}
}

// TestEndpointWarning checks that every result of an insecure connection carries a
// warning; on loopback only the doctor reports it.
func TestEndpointWarning(t *testing.T) {
	none := func(string) string { return "" }
	for host, want := range map[string]string{
		"unix:///x": "", "ssh://lab": "",
		"tcp://127.9.9.9:1": "every user of this machine", "tcp://localhost:1": "every user of this machine", "tcp://[::1]:1": "every user of this machine",
		"tcp://10.9.8.7:1": "anybody on the way controls its machine",
	} {
		endpoint, err := find(Address{Host: host, AllowInsecure: true}, none, "")
		require.NoError(t, err)
		assert.Equal(t, want == "", endpoint.Warning == "", host)
		assert.Contains(t, endpoint.Warning, want)
	}
}

func TestIsLocal(t *testing.T) {
	for host, want := range map[string]bool{
		"unix:///var/run/docker.sock": true, "unix://x": true,
		"tcp://127.0.0.1:2375": false, "ssh://me@host": false, "http://unix://": false, "": false, "/var/run/docker.sock": false,
	} {
		require.Equal(t, want, IsLocal(host), host)
	}
}

// TestConfigDir checks that an account without a home directory has no
// configuration, never one in the current directory.
func TestConfigDir(t *testing.T) {
	assert.Equal(t, "/x", configDir(func(string) string { return "/x" }))
	t.Setenv("HOME", "/home/me")
	assert.Equal(t, "/home/me/.docker", configDir(func(string) string { return "" }))
	t.Setenv("HOME", "")
	assert.True(t, filepath.IsAbs(configDir(func(string) string { return "" })))
}

// TestSSHHint checks that the hint is a command that can be copied.
func TestSSHHint(t *testing.T) {
	for address, want := range map[string]string{
		"ssh://lab":                             "ssh lab docker version",
		"ssh://me:xxxxx@lab:2222/run/some.sock": "ssh -p 2222 me@lab docker version",
		"":                                      "ssh HOST docker version",
	} {
		assert.Contains(t, (&Error{Advice: adviceSSH, Address: address}).Hint(), want)
	}
}

// TestMismatchedKey checks that a key that does not match is reported in the words of TLS
// alone.
func TestMismatchedKey(t *testing.T) {
	endpoint := Endpoint{Host: "tcp://lab:2376", docker: docker.Endpoint{EndpointMeta: docker.EndpointMeta{Host: "tcp://lab:2376"},
		TLSData: &dcontext.TLSData{CA: []byte("x"), Cert: []byte("x"), Key: []byte("x")}}}
	_, err := endpoint.Client()
	require.ErrorContains(t, err, "container engine unavailable: tcp://lab:2376: ")
	require.NotContains(t, err.Error(), "context")
}

// TestSSHFailure classifies the errors of ssh connections, which have no type.
func TestSSHFailure(t *testing.T) {
	ended := func(status, stderr string) string {
		return "command [ssh -o ConnectTimeout=30 -T -- lab docker system dial-stdio] has exited with " + status +
			", make sure the URL is valid, and Docker 18.09 or later is installed on the remote host: stderr=" + stderr
	}
	tests := map[string]struct {
		text   string
		advice string
		detail string
	}{
		"host key":   {ended("exit status 255", "No ED25519 host key is known for lab and you have requested strict checking.\r\nHost key verification failed.\r\n"), adviceHostKey, "Host key verification failed."},
		"login":      {ended("exit status 255", "Welcome!\nme@lab: Permission denied (publickey).\r\n"), adviceLogin, "me@lab: Permission denied (publickey)."},
		"name":       {ended("exit status 255", "ssh: Could not resolve hostname lab: Name or service not known\r\n"), adviceSSH, "ssh: Could not resolve hostname lab: Name or service not known"},
		"no docker":  {ended("exit status 127", "sh: 1: docker: not found\n"), adviceNoDocker, "sh: 1: docker: not found"},
		"no engine":  {ended("exit status 1", "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?\n"), adviceNoDaemon, "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"},
		"no right":   {ended("exit status 1", "permission denied while trying to connect to the Docker daemon socket at unix:///x: dial unix /x: connect: permission denied"), advicePermission, "permission denied while"},
		"cut":        {ended("signal: killed", ""), adviceSSH, "ssh ended with signal: killed"},
		"stuck":      {`command [ssh lab] did not exit after EOF: stderr="x"`, adviceSSH, `"x"`},
		"a flood":    {ended("exit status 1", strings.Repeat("é", 5000)), adviceSSH, "…"},
		"two lines!": {ended("exit status 1", "a\nb: stderr=c\n\n"), adviceSSH, "b: stderr=c"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := sshFailure(test.text, "ssh://lab")
			require.NotNil(t, got)
			assert.Equal(t, test.advice, got.Advice)
			assert.Equal(t, test.advice == advicePermission, errors.Is(got, engine.ErrPermission))
			assert.Contains(t, got.Detail, test.detail)
			assert.LessOrEqual(t, len(got.Detail), maxSaid+len("…"))
			assert.Contains(t, got.Error(), "container engine unavailable: ssh://lab: ")
		})
	}
	require.Nil(t, sshFailure("read |0: file already closed", ""))
}

// BenchmarkFind measures a cost of every command: far below a millisecond without a
// configuration, below three with a context.
func BenchmarkFind(b *testing.B) {
	dir := b.TempDir()
	create := exec.Command("docker", "context", "create", "lab", "--docker", "host=ssh://lab")
	create.Env = append(os.Environ(), "DOCKER_CONFIG="+dir)
	out, err := create.CombinedOutput()
	require.NoError(b, err, "%s", out)
	for name, at := range map[string]Address{"default": {}, "context": {Context: "lab"}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				endpoint, err := find(at, func(string) string { return "" }, dir)
				if err == nil {
					_, err = endpoint.Client()
				}
				require.NoError(b, err)
			}
		})
	}
}
