package porter

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Target is an address that a probe tries to reach.
type Target struct {
	// Network is "tcp", or "udp" for a query to a name server.
	Network string
	Address netip.AddrPort
}

func (t Target) String() string { return t.Network + " " + t.Address.String() }

const (
	// probePatience is how long an address may take to answer.
	probePatience = time.Second
	// nodePort is that of the kubelet, which every node has.
	nodePort = 10250
	// fileBytes bounds the files that describe the network.
	fileBytes = 64 << 10
	// ProbeEnd is the last line of a probe that tried everything.
	ProbeEnd = "done"
)

// nowhere is an address that nobody has (RFC 5737).
var nowhere = Target{"tcp", netip.MustParseAddrPort("198.51.100.1:9")}

// Probe tries to get out of the pod: to the given addresses, the API server, the gateway, the name
// servers and the metadata service of clouds. It writes a line for each one that answered, and then
// [ProbeEnd]. It takes about a second where nothing answers.
func Probe(ctx context.Context, addresses []string, to io.Writer) error {
	targets := []Target{{"tcp", netip.MustParseAddrPort("169.254.169.254:80")}}
	add := func(network, host, port string) {
		if address, err := netip.ParseAddrPort(net.JoinHostPort(host, port)); err == nil {
			targets = append(targets, Target{network, address})
		}
	}
	for _, text := range addresses {
		address, err := netip.ParseAddrPort(text)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		targets = append(targets, Target{"tcp", address})
	}
	add("tcp", os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	routes, err := readSmall("/proc/net/route")
	if err != nil {
		return err
	}
	for _, gateway := range gateways(routes) {
		targets = append(targets, Target{"tcp", netip.AddrPortFrom(gateway, nodePort)})
	}
	servers, err := readSmall("/etc/resolv.conf")
	if err != nil {
		return err
	}
	for line := range strings.Lines(servers) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			add("udp", fields[1], "53")
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	targets = slices.DeleteFunc(targets, func(t Target) bool {
		return t.Address.Addr().IsLoopback() || slices.ContainsFunc(own, func(a net.Addr) bool {
			prefix, err := netip.ParsePrefix(a.String())
			return err == nil && prefix.Addr() == t.Address.Addr()
		})
	})
	for _, target := range answering(ctx, targets, nowhere) {
		if _, err := fmt.Fprintln(to, target); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(to, ProbeEnd)
	return err
}

// readSmall reads the beginning of a file; a file that does not exist is empty.
func readSmall(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fileBytes))
	return string(text), err
}

// gateways returns those of the default routes of /proc/net/route.
func gateways(routes string) (found []netip.Addr) {
	for line := range strings.Lines(routes) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != "00000000" {
			continue
		}
		number, err := hex.DecodeString(fields[2])
		if err != nil || len(number) != 4 {
			continue
		}
		// The kernel prints a number of this machine, which is little-endian.
		binary.BigEndian.PutUint32(number, binary.LittleEndian.Uint32(number))
		if gateway := netip.AddrFrom4([4]byte(number)); !gateway.IsUnspecified() {
			found = append(found, gateway)
		}
	}
	return found
}

// answering returns the targets from which an answer comes. A refusal is one, too, unless a rule on
// the way refuses everything: then it comes for an address that nobody has as well.
func answering(ctx context.Context, targets []Target, nowhere Target) (found []Target) {
	var tried sync.WaitGroup
	results := make([]error, len(targets))
	for i, target := range targets {
		tried.Go(func() { results[i] = attempt(ctx, target) })
	}
	control := attempt(ctx, nowhere)
	tried.Wait()
	for i, err := range results {
		refused := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
		if err == nil || refused && !errors.Is(control, syscall.ECONNREFUSED) {
			found = append(found, targets[i])
		}
	}
	return found
}

// rootQuery asks a name server for those of the root.
const rootQuery = "\x2a\x2a\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + "\x00\x00\x02\x00\x01"

// attempt tries to get an answer.
func attempt(ctx context.Context, target Target) error {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, target.Network, target.Address.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if target.Network == "tcp" {
		return nil
	}
	if err := conn.SetDeadline(time.Now().Add(probePatience)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(rootQuery)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 512))
	return err
}
