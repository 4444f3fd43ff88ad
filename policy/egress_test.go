package policy

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNormalizeHost(t *testing.T) {
	for host, want := range map[string]string{
		"example.org": "example.org", "EXAMPLE.Org.": "example.org", "bücher.example": "xn--bcher-kva.example",
		"BÜCHER.example": "xn--bcher-kva.example", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"ex。ample.org": "ex.ample.org", "r4---sn.example": "r4---sn.example", "_srv.example": "_srv.example",
		"127.0.0.1": "127.0.0.1", "[::1]": "::1", "::1": "::1", "::ffff:10.0.0.1": "10.0.0.1", "[::FFFF:0a00:0001]": "10.0.0.1",
		"2001:DB8::0001": "2001:db8::1", "127。0。0。1": "127.0.0.1", "１２７.0.0.1": "127.0.0.1", "localhost": "localhost",
	} {
		name, addr, err := NormalizeHost(host)
		require.NoError(t, err, host)
		require.Equal(t, want, name, host)
		_, parseErr := netip.ParseAddr(want)
		require.Equal(t, parseErr == nil, addr.IsValid(), host)
	}
	for _, host := range []string{
		"", ".", "..", "a..b", ".a", "-a.example", "a-.example", "a b", "a/b", "a@b", "a:80", "[127.0.0.1]", "[::1", "::1]",
		"127.1", "0x7f.1", "0177.0.0.01", "2130706433", "0x7f000001", "1.2.3.4.5", "example.0x10", "fe80::1%eth0", "[fe80::1%25eth0]",
		"a\x00b", "a\r\nb", "*.example.org", "\xff\xfe", strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 200) + "example",
		strings.Repeat("ü", 2000), "exa%6dple.org", "127.0.0.1.", "a\u200db.example",
	} {
		_, _, err := NormalizeHost(host)
		require.Error(t, err, host)
	}
}

func TestParseHostPattern(t *testing.T) {
	for text, want := range map[string]string{
		"Example.ORG.": "example.org", "example.org:8443": "example.org:8443", "*.Example.org": "*.example.org",
		"*.bücher.example:1": "*.xn--bcher-kva.example:1", "192.0.2.7": "192.0.2.7", "192.0.2.7:80": "192.0.2.7:80",
		"::ffff:192.0.2.7": "192.0.2.7", "2001:db8::7": "2001:db8::7", "[2001:db8::7]": "2001:db8::7",
		"[2001:db8::7]:443": "[2001:db8::7]:443", "10.0.0.0/8": "10.0.0.0/8", "10.0.0.0/8:8080": "10.0.0.0/8:8080",
		"fd00::/8": "fd00::/8", "[fd00::/8]:1": "[fd00::/8]:1", "10.1.2.3/32": "10.1.2.3", "64:ff9b::a00:1": "10.0.0.1",
	} {
		pattern, err := ParseHostPattern(text)
		require.NoError(t, err, text)
		require.Equal(t, want, pattern.String(), text)
		again, err := ParseHostPattern(pattern.String())
		require.NoError(t, err, text)
		require.Equal(t, pattern, again, text)
	}
	for _, text := range []string{
		"", "*", "*.", "**.example.org", "a.*.org", "*example.org", "*.1.2.3.4", "*.[::1]", "*.127.0.0.1", "example.org:", "example.org:0",
		"example.org:65536", "example.org:+1", "example.org:http", "https://example.org", "example.org/path", "user@example.org",
		"10.0.0.1/8", "0.0.0.0/0", "::/0", "10.0.0.0/7", "10.0.0.0/33", "::ffff:10.0.0.0/104", "64:ff9b::/96", "fe80::1%eth0", "[::1]x",
	} {
		_, err := ParseHostPattern(text)
		var field *FieldError
		require.ErrorAs(t, err, &field, text)
	}
}

func rules(t *testing.T, e Egress, own ...netip.Addr) *EgressRules {
	t.Helper()
	r, err := e.Rules([]string{"pypi.org", "*.example.net"}, own)
	require.NoError(t, err)
	return r
}

func TestEgressHosts(t *testing.T) {
	api := Egress{Level: API, Allow: []string{"api.example.org", "*.sub.example.org", "git.example.org:9418", "git.example.org", "192.0.2.7:8080", "10.0.0.0/8"},
		Deny: []string{"bad.sub.example.org", "10.1.0.0/16", "api.example.org:80"}}
	open := Egress{Level: Open, Allow: []string{"db.example.org:5432"}, Deny: []string{"*.example.com", "8.8.8.8", "9.9.9.9:853"}}
	registry := Egress{Level: Registry, Allow: []string{"mirror.example.org:8080"}}
	tests := []struct {
		egress  Egress
		host    string
		port    uint16
		allowed bool
		rule    string
	}{
		{api, "api.example.org", 443, true, "allowed by api.example.org"},
		{api, "API.example.ORG.", 443, true, "allowed by api.example.org"},
		{api, "api.example.org", 80, false, "denied by api.example.org:80"},
		{api, "api.example.org", 8080, false, "port 8080 is not one of api.example.org"},
		{api, "xapi.example.org", 443, false, "no permitted host matches"},
		{api, "api.example.org.evil.example", 443, false, "no permitted host matches"},
		{api, "a.sub.example.org", 443, true, "allowed by *.sub.example.org"},
		{api, "a.b.sub.example.org", 443, true, "allowed by *.sub.example.org"},
		{api, "sub.example.org", 443, false, "no permitted host matches"},
		{api, "xsub.example.org", 443, false, "no permitted host matches"},
		{api, "bad.sub.example.org", 443, false, "denied by bad.sub.example.org"},
		{api, "git.example.org", 9418, true, "allowed by git.example.org:9418"},
		{api, "git.example.org", 443, true, "allowed by git.example.org"},
		{api, "192.0.2.7", 8080, true, "allowed by 192.0.2.7:8080"},
		{api, "::ffff:192.0.2.7", 8080, true, "allowed by 192.0.2.7:8080"},
		{api, "192.0.2.7", 80, false, "port 80 is not one of 192.0.2.7:8080"},
		{api, "10.2.0.1", 443, true, "allowed by 10.0.0.0/8"},
		{api, "10.1.0.1", 443, false, "denied by 10.1.0.0/16"},
		{api, "64:ff9b::10.1.0.1", 443, false, "denied by 10.1.0.0/16"},
		{api, "", 443, false, "the host must be"},
		{api, "0x7f.1", 80, false, "ends in a number"},
		{open, "anything.example", 22, true, "the level is open"},
		{open, "www.example.com", 443, false, "denied by *.example.com"},
		{open, "8.8.8.8", 53, false, "denied by 8.8.8.8"},
		{open, "9.9.9.9", 853, false, "denied by 9.9.9.9:853"},
		{open, "9.9.9.9", 443, true, "the level is open"},
		{registry, "pypi.org", 443, true, "allowed by pypi.org"},
		{registry, "a.example.net", 443, true, "allowed by *.example.net"},
		{registry, "mirror.example.org", 8080, true, "allowed by mirror.example.org:8080"},
		{registry, "api.example.org", 443, false, "no permitted host matches"},
		{Egress{Level: API}, "pypi.org", 443, false, "no permitted host matches"},
		{Egress{Allow: []string{"pypi.org"}}, "pypi.org", 443, false, "the level is offline"},
	}
	for _, test := range tests {
		v := rules(t, test.egress).Host(test.host, test.port)
		require.Equal(t, test.allowed, v.Allowed, "%s:%d %s", test.host, test.port, v.Rule)
		require.Contains(t, v.Rule, test.rule, "%s:%d", test.host, test.port)
		require.Equal(t, test.egress.Level == Registry && v.Allowed, v.ReadOnly && v.Allowed)
	}
	require.True(t, rules(t, api).Host("git.example.org", 9418).Raw)
	require.True(t, rules(t, open).Host("db.example.org", 5432).Raw)
	for _, host := range []string{"git.example.org", "api.example.org"} {
		require.False(t, rules(t, api).Host(host, 443).Raw)
	}
	require.False(t, rules(t, open).Host("ssh.example.org", 22).Raw, "only a port that is named holds anything")
	require.False(t, rules(t, registry).Host("mirror.example.org", 8080).Raw)
}

func TestEgressAddresses(t *testing.T) {
	refused := []string{
		"127.0.0.1", "127.8.9.1", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.1.1",
		"169.254.169.254", "100.64.0.1", "100.127.255.255", "100.100.100.200", "168.63.129.16", "192.0.0.1", "192.0.2.1", "198.18.0.1",
		"203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "192.88.99.1",
		"::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::7f00:1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254",
		"fec0::1", "ff02::1", "2001:db8::1", "2001::1", "2002:7f00:1::", "2002:808:808::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
		"64:ff9b:1::808:808", "3fff::1", "100::1", "4000::1", "5f00::1", "2001:20::1",
		"8.8.4.4", // of this machine
	}
	public := []string{"8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808", "::ffff:8.8.8.8", "2001:4860:4860::8888"}
	own := netip.MustParseAddr("8.8.4.4")
	for _, level := range []NetworkLevel{API, Open, Registry} {
		r := rules(t, Egress{Level: level, Deny: []string{"9.9.9.0/24"}}, own)
		for _, text := range refused {
			v := r.Address(netip.MustParseAddr(text), 443)
			require.False(t, v.Allowed, "%s %s", text, level)
			require.Contains(t, v.Rule, "not listed", text)
		}
		for _, text := range public {
			require.True(t, r.Address(netip.MustParseAddr(text), 443).Allowed, text)
		}
		for _, text := range []string{"9.9.9.9", "::ffff:9.9.9.9", "64:ff9b::9.9.9.9"} {
			require.Contains(t, r.Address(netip.MustParseAddr(text), 443).Rule, "denied by 9.9.9.0/24", text)
		}
		require.False(t, r.Address(netip.Addr{}, 443).Allowed)
	}
	offline := rules(t, Egress{Allow: []string{"8.8.8.8"}})
	require.False(t, offline.Address(netip.MustParseAddr("8.8.8.8"), 443).Allowed)

	listed := rules(t, Egress{Level: API, Allow: []string{"127.0.0.5:8000", "10.0.0.0/8", "169.254.0.0/16", "fd00::/8", "8.8.4.4", "name.example"}, Deny: []string{"10.9.0.0/16"}}, own)
	for text, port := range map[string]uint16{"127.0.0.5": 8000, "10.1.2.3": 443, "169.254.1.1": 80, "fd00::1": 443, "8.8.4.4": 443, "64:ff9b::10.1.2.3": 443} {
		require.True(t, listed.Address(netip.MustParseAddr(text), port).Allowed, text)
	}
	for text, port := range map[string]uint16{"127.0.0.5": 443, "127.0.0.6": 8000, "10.1.2.3": 8000, "10.9.1.1": 443,
		"169.254.169.254": 80, "fd00:ec2::254": 80, "::1": 80} {
		require.False(t, listed.Address(netip.MustParseAddr(text), port).Allowed, text)
	}
	meta := rules(t, Egress{Level: API, Allow: []string{"169.254.169.254"}})
	require.True(t, meta.Address(netip.MustParseAddr("169.254.169.254"), 80).Allowed, "listed alone")
}

func TestApplyEgress(t *testing.T) {
	pol := Policy{AllowEgress: API, Registries: []string{"pypi.org"}, MaxEgress: EgressLimits{Bytes: 10 * MiB, Requests: 50}}
	got, err := pol.ApplyEgress(&Egress{Level: API, Allow: []string{"B.example", "a.example", "b.example."}, Deny: []string{"c.example"},
		Resolve: map[string][]netip.Addr{"B.example.": {netip.MustParseAddr("8.8.8.8")}}})
	require.NoError(t, err)
	require.Equal(t, &Egress{Level: API, Allow: []string{"b.example", "a.example"}, Deny: []string{"c.example"},
		Resolve: map[string][]netip.Addr{"b.example": {netip.MustParseAddr("8.8.8.8")}},
		Limits:  EgressLimits{Connections: 64, Requests: 50, Bytes: 10 * MiB, ConnectionTime: 30 * time.Minute}}, got)

	got, err = pol.ApplyEgress(&Egress{Level: Registry, Allow: []string{"mirror.example"}})
	require.NoError(t, err)
	require.Equal(t, []string{"mirror.example", "pypi.org"}, got.Allow)

	for _, offline := range []*Egress{nil, {}, {Level: Offline, Allow: []string{"a.example"}}} {
		got, err := Policy{}.ApplyEgress(offline)
		require.NoError(t, err)
		require.Nil(t, got)
	}
}

func TestApplyEgressRefuses(t *testing.T) {
	addr := netip.MustParseAddr("8.8.8.8")
	tests := map[string]struct {
		policy Policy
		egress Egress
		want   []string
	}{
		"zero policy":             {Policy{}, Egress{Level: API}, []string{`network level "api": the policy permits offline at most`}},
		"above":                   {Policy{AllowEgress: API}, Egress{Level: Open}, []string{`network level "open": the policy permits api at most`}},
		"unknown level":           {Policy{AllowEgress: Open}, Egress{Level: "wide"}, []string{`network level "wide": must be`}},
		"unknown policy":          {Policy{AllowEgress: "wide"}, Egress{Level: API}, []string{"the highest network level is"}},
		"no registries":           {Policy{AllowEgress: Open}, Egress{Level: Registry}, []string{"names no package registries"}},
		"hosts beside":            {Policy{AllowEgress: Registry, Registries: []string{"pypi.org"}}, Egress{Level: Registry, Allow: []string{"a.example"}}, []string{"lists other hosts"}},
		"all patterns at once":    {Policy{AllowEgress: API}, Egress{Level: API, Allow: []string{"a b", "*"}, Deny: []string{"x:0"}}, []string{`allow-host "a b"`, `allow-host "*"`, `deny-host "x:0"`}},
		"private":                 {Policy{AllowEgress: API}, Egress{Level: API, Allow: []string{"127.0.0.1:80"}}, []string{`allow-host "127.0.0.1:80": is not public`}},
		"private range":           {Policy{AllowEgress: Open}, Egress{Level: Open, Allow: []string{"8.0.0.0/8", "192.0.0.0/8", "fc00::/8"}}, []string{`"192.0.0.0/8"`, `"fc00::/8"`}},
		"metadata":                {Policy{AllowEgress: Open}, Egress{Level: Open, Allow: []string{"168.63.0.0/16"}}, []string{"allow_private_egress"}},
		"limits":                  {Policy{AllowEgress: API, MaxEgress: EgressLimits{Connections: 5}}, Egress{Level: API, Limits: EgressLimits{Connections: 6, Bytes: -1, Requests: -1, ConnectionTime: time.Millisecond}}, []string{"egress-connections 6: above", "egress-bytes", "egress-requests", "egress-time"}},
		"too many connections":    {Policy{AllowEgress: API}, Egress{Level: API, Limits: EgressLimits{Connections: 1001}}, []string{"egress-connections 1001"}},
		"too many hosts":          {Policy{AllowEgress: API}, Egress{Level: API, Allow: make([]string, 1001)}, []string{"allow-host of 1001 hosts"}},
		"resolve an address":      {Policy{AllowEgress: API}, Egress{Level: API, Resolve: map[string][]netip.Addr{"8.8.8.8": {addr}}}, []string{"is an address, not a name"}},
		"resolve to nothing":      {Policy{AllowEgress: API}, Egress{Level: API, Resolve: map[string][]netip.Addr{"a.example": nil}}, []string{"1 to 16 addresses"}},
		"resolve to no address":   {Policy{AllowEgress: API}, Egress{Level: API, Resolve: map[string][]netip.Addr{"a.example": {{}}}}, []string{"has an address that is not valid"}},
		"resolve twice":           {Policy{AllowEgress: API}, Egress{Level: API, Resolve: map[string][]netip.Addr{"a.example": {addr}, "A.example": {addr}}}, []string{"is there twice"}},
		"resolve what is no name": {Policy{AllowEgress: API}, Egress{Level: API, Resolve: map[string][]netip.Addr{"a b": {addr}}}, []string{`add-host "a b"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.policy.ApplyEgress(&test.egress)
			require.Nil(t, got)
			for _, want := range test.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
	ok, err := Policy{AllowEgress: API, AllowPrivateEgress: true}.ApplyEgress(&Egress{Level: API, Allow: []string{"127.0.0.1:80"}})
	require.NoError(t, err)
	require.Equal(t, []string{"127.0.0.1:80"}, ok.Allow)
}

func TestParseAddHost(t *testing.T) {
	for text, want := range map[string]string{"a.example:127.0.0.5": "127.0.0.5", "a:::1": "::1", "a:[::1]": "::1"} {
		_, addr, err := ParseAddHost(text)
		require.NoError(t, err, text)
		require.Equal(t, want, addr.String())
	}
	for _, text := range []string{"", "a", "a:", ":1.2.3.4", "a:b", "1.2.3.4:5.6.7.8", "a:fe80::1%x"} {
		_, _, err := ParseAddHost(text)
		require.Error(t, err, text)
	}
}

func TestLoadRegistries(t *testing.T) {
	hosts, err := LoadRegistries([]byte("schema: evalbox/registries/v1\nregistries: {b: [B.example, a.example], c: [a.example]}\n"), "x.yaml")
	require.NoError(t, err)
	require.Equal(t, []string{"a.example", "b.example"}, hosts)
	for text, want := range map[string]string{
		"":              "x.yaml",
		"schema: other": `have "other"`,
		"schema: evalbox/registries/v1\nhosts: []":              `x.yaml:2: unknown key "hosts"`,
		"schema: evalbox/registries/v1":                         "at least one host",
		"schema: evalbox/registries/v1\nregistries: {b: ['*']}": "x.yaml: registries.b",
	} {
		_, err := LoadRegistries([]byte(text), "x.yaml")
		require.ErrorContains(t, err, want, text)
	}
}

// FuzzHosts: whatever a host or a pattern is, its normal form is one, and what is no
// permitted host is refused.
func FuzzHosts(f *testing.F) {
	for _, seed := range []string{"example.org", "*.example.org:80", "[::1]:8080", "10.0.0.0/8", "bücher.example", "0x7f.1", "::ffff:1.2.3.4", "127。0。0。1"} {
		f.Add(seed, "a."+seed)
	}
	f.Fuzz(func(t *testing.T, pattern, host string) {
		if name, addr, err := NormalizeHost(host); err == nil {
			again, addrAgain, err := NormalizeHost(name)
			require.NoError(t, err)
			require.Equal(t, name, again)
			require.Equal(t, addr, addrAgain)
			require.LessOrEqual(t, len(name), maxHost)
			require.True(t, isASCII(name))
		}
		parsed, err := ParseHostPattern(pattern)
		if err != nil {
			var field *FieldError
			require.ErrorAs(t, err, &field)
			return
		}
		again, err := ParseHostPattern(parsed.String())
		require.NoError(t, err, parsed.String())
		require.Equal(t, parsed, again)
		r, err := Egress{Level: API, Allow: []string{pattern}}.Rules(nil, nil)
		require.NoError(t, err)
		if v := r.Host(host, 443); v.Allowed {
			name, _, err := NormalizeHost(host)
			require.NoError(t, err)
			require.True(t, r.Host(name, 443).Allowed)
		}
		deny, err := Egress{Level: Open, Deny: []string{pattern}}.Rules(nil, nil)
		require.NoError(t, err)
		require.False(t, r.Host(host, 443).Allowed && deny.Host(host, 443).Allowed, "permitted by a pattern, and not denied by the same")
	})
}

func TestHostPatternCovers(t *testing.T) {
	for _, c := range []struct {
		p, q string
		want bool
	}{
		{"a.example.org", "a.example.org", true},
		{"a.example.org", "b.example.org", false},
		{"a.example.org", "a.example.org:443", true},
		{"a.example.org:443", "a.example.org", false},
		{"a.example.org", "a.example.org:8443", false},
		{"*.example.org", "a.example.org", true},
		{"*.example.org", "*.b.example.org", true},
		{"*.b.example.org", "*.example.org", false},
		{"*.example.org", "example.org", false},
		{"a.example.org", "*.example.org", false},
		{"10.0.0.0/8", "10.1.0.0/16", true},
		{"10.1.0.0/16", "10.0.0.0/8", false},
		{"10.0.0.0/8", "10.0.0.7", true},
		{"10.0.0.0/8", "a.example.org", false},
		{"a.example.org", "10.0.0.7", false},
		{"2001:db8::/32", "2001:db8::7", true},
	} {
		p, err := ParseHostPattern(c.p)
		require.NoError(t, err)
		q, err := ParseHostPattern(c.q)
		require.NoError(t, err)
		require.Equal(t, c.want, p.Covers(q), "%s covers %s", c.p, c.q)
	}
}
