package egress

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

func TestDialer(t *testing.T) {
	listener := listen(t, "127.0.0.5:0")
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	port := portOf(listener)
	at := ":" + strconv.Itoa(int(port))
	pol := policy.Policy{AllowEgress: policy.API, AllowPrivateEgress: true}
	applied, err := pol.ApplyEgress(&policy.Egress{
		Level: policy.API, Allow: []string{"127.0.0.5" + at, "good.example" + at, "half.example" + at, "gone.example" + at},
		Resolve: map[string][]netip.Addr{
			"Good.example": addrs("127.0.0.5"), "half.example": addrs("127.0.0.5", "127.0.0.6"), "other.example": addrs("127.0.0.5"),
		},
	})
	require.NoError(t, err)
	d, err := NewDialer(*applied)
	require.NoError(t, err)
	d.Resolver = &table{}
	for _, host := range []string{"GOOD.example.", "127.0.0.5", "::ffff:127.0.0.5"} {
		conn, addr, err := d.Dial(t.Context(), host, port)
		require.NoError(t, err, host)
		require.Equal(t, "127.0.0.5", addr.String())
		require.NoError(t, conn.Close())
	}
	dialled := &recordingDialer{}
	d.Net = dialled
	for host, want := range map[string]string{
		"other.example": "no permitted host matches",
		"127.0.0.6":     "no permitted host matches",
		"127.1":         "the host ends in a number",
		"half.example":  "127.0.0.6: the address is loopback, and not listed",
	} {
		_, _, err := d.Dial(t.Context(), host, port)
		var no *RefusedError
		require.ErrorAs(t, err, &no, host)
		require.Contains(t, no.Rule, want)
	}
	_, _, err = d.Dial(t.Context(), "good.example", 443)
	require.ErrorContains(t, err, "port 443 is not one of")
	_, _, err = d.Dial(t.Context(), "gone.example", port)
	require.EqualError(t, err, "gone.example: no such host")
	require.Empty(t, dialled.addresses)
}

func TestDialerPermitsNothing(t *testing.T) {
	offline, err := NewDialer(policy.Egress{})
	require.NoError(t, err)
	for _, d := range []*Dialer{offline, {}} {
		_, _, err := d.Dial(t.Context(), "8.8.8.8", 443)
		var no *RefusedError
		require.ErrorAs(t, err, &no)
	}
	_, err = NewDialer(policy.Egress{Level: policy.API, Allow: []string{"a b"}})
	require.ErrorContains(t, err, "allow-host")
}
