package observe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Unobservable says why programs of an engine cannot be observed from here; empty if no
// reason is known.
func Unobservable(info engine.Info) string {
	if !info.Local {
		return "the engine is on another machine, or its processes cannot be seen from here"
	}
	return ""
}

// routeCounters count the packets that had no route in the network namespace of a container,
// and those to a group of addresses (multicast), which a program can send through the
// loopback device without a route. The open files keep the namespace. So it can be read
// after all of its processes have ended, also if another process has their number.
type routeCounters struct {
	v4, v6 *os.File // v6 is nil where the kernel has no IPv6
	groups *os.File
	before int64
}

// openRouteCounters opens the counters of a container by its main process. It verifies that
// the process is the container's init, on this kernel, and that its network has no route.
func openRouteCounters(pid int) (c *routeCounters, err error) {
	if pid <= 0 {
		return nil, errors.New("the engine did not report the container's process")
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	c = &routeCounters{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
			c = nil
		}
	}()
	if c.v4, err = os.Open(filepath.Join(proc, "net/snmp")); err != nil {
		return c, fmt.Errorf("the counters of the container's network cannot be read: %w", fsx.Cause(err))
	}
	if c.v6, err = os.Open(filepath.Join(proc, "net/snmp6")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("the counters of the container's network cannot be read: %w", fsx.Cause(err))
	}
	if c.groups, err = os.Open(filepath.Join(proc, "net/netstat")); err != nil {
		return c, fmt.Errorf("the counters of the container's network cannot be read: %w", fsx.Cause(err))
	}
	// Afterwards: the check is about the files that are open.
	if command, err := os.ReadFile(filepath.Join(proc, "cmdline")); err != nil || !bytes.Contains(command, []byte(spec.HoldDir+"/"+spec.WitnessFile)) {
		return c, fmt.Errorf("process %d is not that of the container: the runtime has a kernel of its own, or the process cannot be seen", pid)
	}
	routes, err := os.ReadFile(filepath.Join(proc, "net/route"))
	if err != nil || len(bytes.Split(bytes.TrimSpace(routes), []byte("\n"))) != 1 {
		return c, errors.New("the container's network has routes, or they cannot be read")
	}
	if c.v6 != nil {
		if addresses, err := os.ReadFile(filepath.Join(proc, "net/if_inet6")); err != nil || len(bytes.TrimSpace(addresses)) == 0 {
			return c, errors.New("IPv6 is switched off in the container, so that its attempts are not counted")
		}
	}
	c.before, err = c.sum()
	return c, err
}

// attempts returns the number of packets since the counters were opened.
func (c *routeCounters) attempts() (int64, error) {
	now, err := c.sum()
	return now - c.before, err
}

func (c *routeCounters) close() error {
	if c == nil {
		return nil
	}
	var errs []error
	for _, file := range []*os.File{c.v4, c.v6, c.groups} {
		if file != nil {
			errs = append(errs, file.Close())
		}
	}
	return errors.Join(errs...)
}

// maxCounters bounds a file of counters, in bytes. It usually has some kilobytes.
const maxCounters = 1 << 20

func (c *routeCounters) sum() (int64, error) {
	sum, err := counterOf(c.v4, parseNoRoutes)
	if err != nil {
		return 0, err
	}
	groups, err := counterOf(c.groups, parseMulticast)
	if sum += groups; err != nil || c.v6 == nil {
		return sum, err
	}
	v6, err := counterOf(c.v6, parseSNMP6)
	return sum + v6, err
}

func counterOf(file *os.File, parse func(text string) (int64, error)) (int64, error) {
	text, err := io.ReadAll(io.NewSectionReader(file, 0, maxCounters))
	if err != nil {
		return 0, fmt.Errorf("the counters of the container's network cannot be read: %w", fsx.Cause(err))
	}
	return parse(string(text))
}

// parseNoRoutes finds OutNoRoutes in /proc/net/snmp.
func parseNoRoutes(text string) (int64, error) {
	return parsePairs(text, "Ip:", "OutNoRoutes", "packets without a route")
}

// parseMulticast finds OutMcastPkts in /proc/net/netstat. Multicast of IPv6 needs a route, and
// counts as packets without one.
func parseMulticast(text string) (int64, error) {
	return parsePairs(text, "IpExt:", "OutMcastPkts", "multicast packets")
}

// parsePairs finds a counter in a file in which a line of numbers follows a line of names.
func parsePairs(text, protocol, counter, what string) (int64, error) {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != protocol {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if name == counter && i < len(fields) {
				return parseCounter(fields[i])
			}
		}
	}
	return 0, fmt.Errorf("the kernel does not count %s (%s %s)", what, protocol, counter)
}

// parseSNMP6 finds Ip6OutNoRoutes in /proc/net/snmp6: a name and a number in each line.
func parseSNMP6(text string) (int64, error) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "Ip6OutNoRoutes" {
			return parseCounter(fields[1])
		}
	}
	return 0, errors.New("the kernel does not count packets without a route (Ip6OutNoRoutes)")
}

func parseCounter(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("a counter of the kernel is not a number: %.40q", text)
	}
	return n, nil
}
