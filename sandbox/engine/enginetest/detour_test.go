package enginetest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Connections through a detour are broken at once, also those that wait for an answer.
func TestDetour(t *testing.T) {
	asked := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			asked <- struct{}{}
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, "here")
	}))
	t.Cleanup(server.Close)
	inner := NewDetour(t, "unix://"+filepath.Join(t.TempDir(), "s"), "tcp://"+server.Listener.Addr().String())
	way := NewDetour(t, "tcp://127.0.0.1:0", inner.Address())
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) error {
		res, err := client.Get("http" + way.Address()[len("tcp"):] + path)
		if err == nil {
			_, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
		}
		return err
	}
	require.NoError(t, get("/"))
	for _, broken := range []func(){way.Cut, way.Stop} {
		failed := make(chan error)
		go func() { failed <- get("/wait") }()
		<-asked
		broken()
		require.Error(t, <-failed)
	}
	require.Error(t, get("/"), "stopped")
	address := way.Address()
	way.Start()
	require.Equal(t, address, way.Address())
	require.NoError(t, get("/"))
	require.GreaterOrEqual(t, way.Made(), 3)
}
