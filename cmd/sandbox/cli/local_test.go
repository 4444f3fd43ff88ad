package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListenLocal(t *testing.T) {
	for address, want := range map[string]string{
		"0.0.0.0:0": "is not an address of this machine alone", ":0": "is not an address of this machine alone",
		"[::]:0": "is not an address of this machine alone", "192.0.2.1:80": "is not an address of this machine alone",
		"example.org:80": "is not an address of this machine alone", "127.0.0.1": "must be HOST:PORT", "127.0.0.1:x": "--listen",
	} {
		_, err := ListenLocal(t.Context(), "listen", address)
		require.ErrorContains(t, err, want, address)
	}
	for _, address := range []string{"127.0.0.1:0", "localhost:0"} {
		l, err := ListenLocal(t.Context(), "listen", address)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}
