//go:build linux

package hostile

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// nameServer is a real name server with bad manners: what it does depends on the name.
type nameServer struct {
	a, b  netip.Addr
	mu    sync.Mutex
	asked map[string]int
}

// startNameServer serves port 53 of an address over UDP and TCP.
func startNameServer(t *testing.T, at, a, b netip.Addr) *nameServer {
	t.Helper()
	s := &nameServer{a: a, b: b, asked: map[string]int{}}
	packets, err := net.ListenPacket("udp", netip.AddrPortFrom(at, 53).String())
	require.NoError(t, err)
	listener, err := net.Listen("tcp", netip.AddrPortFrom(at, 53).String())
	require.NoError(t, err)
	var busy sync.WaitGroup
	busy.Go(func() { s.servePackets(packets) })
	busy.Go(func() { s.serveConnections(listener) })
	t.Cleanup(func() {
		require.NoError(t, errors.Join(packets.Close(), listener.Close()))
		busy.Wait()
	})
	return s
}

func (s *nameServer) servePackets(packets net.PacketConn) {
	for {
		buffer := make([]byte, 1500)
		n, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return
		}
		for _, answer := range s.answers(buffer[:n], false) {
			_, _ = packets.WriteTo(answer, from)
		}
	}
}

func (s *nameServer) serveConnections(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err == nil {
			question := make([]byte, binary.BigEndian.Uint16(length[:]))
			if _, err := io.ReadFull(conn, question); err == nil {
				for _, answer := range s.answers(question, true) {
					_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
				}
			}
		}
		_ = conn.Close()
	}
}

// answers returns the messages that a question gets.
func (s *nameServer) answers(question []byte, tcp bool) [][]byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(question)
	if err != nil {
		return nil
	}
	q, err := parser.Question()
	if err != nil {
		return nil
	}
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	s.mu.Lock()
	key := name + q.Type.String()
	s.asked[key]++
	times := s.asked[key]
	s.mu.Unlock()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: header.ID, Response: true, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	add := func(owner string, addrs ...netip.Addr) {
		for _, addr := range addrs {
			h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(owner + "."), Class: dnsmessage.ClassINET}
			switch {
			case q.Type == dnsmessage.TypeA && addr.Is4():
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: addr.As4()}})
			case q.Type == dnsmessage.TypeAAAA && !addr.Is4():
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
			}
		}
	}
	alias := func(target string) {
		h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(target + ".")}})
	}
	fixed := map[string]string{
		"inside.example": "10.0.0.7", "meta.example": "169.254.169.254", "mapped.example": "::ffff:127.0.0.1", "nat64.example": "64:ff9b::a9fe:a9fe",
		"six.example": "::1", "zero.example": "0.0.0.0",
	}
	switch {
	case name == "both.example":
		add(name, s.a, s.b)
	case fixed[name] != "":
		add(name, netip.MustParseAddr(fixed[name]))
	case strings.HasPrefix(name, "rebind"):
		add(name, []netip.Addr{s.a, s.b}[min(times-1, 1)])
	case name == "alias.example":
		alias("good.example")
		add("good.example", s.a)
	case name == "trap.example":
		alias("internal.example")
		add("internal.example", s.b)
	case name == "loop.example":
		alias("loop.example")
	case name == "broken.example":
		m.RCode = dnsmessage.RCodeServerFailure
	case name == "empty.example":
	case name == "silent.example":
		return nil
	case name == "garbage.example":
		return [][]byte{[]byte("this is not an answer"), {0, 1, 2}}
	case name == "many.example", name == "tcp.example":
		if !tcp {
			m.Truncated = true
			break
		}
		add(name, s.a)
		for n := byte(1); name == "many.example" && n < 100; n++ {
			add(name, netip.AddrFrom4([4]byte{192, 0, 2, n}))
		}
	case name == "forged.example":
		add(name, s.b)
		m.ID++
		forged := pack(m)
		m.ID--
		m.Answers = nil
		add(name, s.a)
		return [][]byte{forged, pack(m)}
	case name == "poisoned.example":
		add(name, s.a)
		add("elsewhere.example", s.b)
	case name == "good.example", name == "wrongcert.example", name == "raw.example", name == "short.example", name == "unlisted.example", name == "denied.example":
		add(name, s.a)
	default:
		m.RCode = dnsmessage.RCodeNameError
	}
	return [][]byte{pack(m)}
}

func pack(m dnsmessage.Message) []byte {
	text, err := m.Pack()
	if err != nil {
		panic(err) // the names are constants
	}
	return text
}
