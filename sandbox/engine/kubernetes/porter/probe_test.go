package porter

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatAnswersAProbe: a connection, an answer of a name server, and a refusal count, but not a
// refusal of everything, and not silence.
func TestWhatAnswersAProbe(t *testing.T) {
	at := func(address net.Addr) netip.AddrPort { return netip.MustParseAddrPort(address.String()) }
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	udp := func() net.PacketConn {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	server, silent := udp(), udp()
	query := make(chan string, 1)
	go func() {
		text := make([]byte, 512)
		n, from, err := server.ReadFrom(text)
		if err == nil {
			_, _ = server.WriteTo([]byte("answer"), from)
		}
		query <- string(text[:n])
	}()
	open, refused := Target{"tcp", at(listener.Addr())}, Target{"tcp", at(closed.Addr())}
	dns, mute := Target{"udp", at(server.LocalAddr())}, Target{"udp", at(silent.LocalAddr())}

	require.Equal(t, []Target{open, refused, dns}, answering(t.Context(), []Target{open, refused, dns, mute}, mute))
	require.Equal(t, rootQuery, <-query)
	require.Equal(t, []Target{open}, answering(t.Context(), []Target{open, refused, mute}, refused), "a rule refuses everything")
}

func TestProbeEnds(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	var said bytes.Buffer
	require.NoError(t, Probe(t.Context(), []string{"127.0.0.1:1"}, &said))
	require.NotContains(t, said.String(), "127.0.0.1", "an address of the pod itself leads nowhere")
	require.Regexp(t, ProbeEnd+"\n$", said.String())
	require.ErrorContains(t, Probe(t.Context(), []string{"example.org:80"}, &said), "example.org")
}

func TestGateways(t *testing.T) {
	const routes = "Iface\tDestination\tGateway \tFlags\n" +
		"eth0\t00000000\t0101A8C0\t0003\n" + "eth0\t0000A8C0\t00000000\t0001\n" + "eth1\t00000000\t00000000\t0001\n" + "x\t00000000\tzz\n"
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.168.1.1")}, gateways(routes))
}
