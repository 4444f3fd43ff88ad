package egress

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

// nowhere takes calls and reaches nobody: a test must not send to addresses that it
// made up.
type nowhere struct {
	addresses chan string
}

func (d nowhere) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	d.addresses <- address
	return nil, errors.New("nobody is there")
}

// everywhere resolves every name to one public address.
type everywhere struct{}

func (everywhere) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return addrs("8.8.8.8"), nil
}

// FuzzProxy sends what a program might: the proxy neither breaks down nor dials what no
// rule permits, and its log is JSON.
func FuzzProxy(f *testing.F) {
	for _, seed := range []string{
		"GET http://plain.example/ HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT plain.example:443 HTTP/1.1\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n\r\n", "GET http://[::ffff:10.0.0.1]:80/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET http://2130706433/ HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT a@0x7f.1:443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST http://a.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET http://b.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET /\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	egress := policy.Egress{Level: policy.Open}
	rules, err := egress.Rules(nil, nil)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, input []byte) {
		dir, err := os.MkdirTemp("", "egress")
		require.NoError(t, err)
		defer func() { require.NoError(t, os.RemoveAll(dir)) }()
		listener, err := net.Listen("unix", filepath.Join(dir, "s"))
		require.NoError(t, err)
		log, dialled := &safeBuffer{}, nowhere{make(chan string, 1000)}
		p := start(listener, config{
			Rules: rules, Log: log, LogLimit: 1 << 20, Resolver: everywhere{}, Dialer: dialled,
			Limits: policy.EgressLimits{Connections: 4, Requests: 100, Bytes: 1 << 20, ConnectionTime: 10 * time.Second},
		})
		conn, err := net.Dial("unix", filepath.Join(dir, "s"))
		require.NoError(t, err)
		_, _ = conn.Write(input)
		_ = conn.(*net.UnixConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		_ = mustRead(conn)
		_ = conn.Close()
		p.Close()
		close(dialled.addresses)
		for address := range dialled.addresses {
			target, err := netip.ParseAddrPort(address)
			require.NoError(t, err)
			require.True(t, rules.Address(target.Addr(), target.Port()).Allowed, address)
		}
		for line := range strings.Lines(log.String()) {
			require.True(t, json.Valid([]byte(line)), line)
		}
	})
}
