//go:build linux

package observe

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestPathWatchTellsOfLostReports(t *testing.T) {
	witness := filepath.Join(t.TempDir(), "witness")
	require.NoError(t, os.WriteFile(witness, nil, 0o644))
	w, err := newPathWatch(witness)
	require.NoError(t, err)
	report := make([]byte, unix.SizeofInotifyEvent)
	binary.NativeEndian.PutUint32(report, ^uint32(0)) // of no watch
	binary.NativeEndian.PutUint32(report[4:], unix.IN_Q_OVERFLOW)
	w.take(slices.Repeat(report, 2))
	_, err = w.stop()
	require.ErrorIs(t, err, errOverflow)
	require.NoError(t, w.close())
	require.Error(t, w.add(witness, spec.WatchedPath{}), "it is over")
}

func TestPathWatchSeesWhatWasOpenedBefore(t *testing.T) {
	dir := t.TempDir()
	witness, file := filepath.Join(dir, "witness"), filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(witness, nil, 0o644))
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	w, err := newPathWatch(witness)
	require.NoError(t, err)
	require.NoError(t, w.add(file, spec.WatchedPath{Target: "/x"}))
	require.Error(t, w.add(filepath.Join(dir, "none"), spec.WatchedPath{Target: "/y"}))
	_, err = os.ReadFile(file)
	require.NoError(t, err)
	opened, err := w.stop()
	require.NoError(t, err)
	require.Equal(t, []string{"/x"}, opened)
	require.Equal(t, []string{"/x"}, w.watched())
	require.NoError(t, w.close())
}

func TestRouteCountersAreOfAContainer(t *testing.T) {
	for pid, want := range map[int]string{
		0:           "did not report",
		-1:          "did not report",
		1 << 30:     "cannot be read",
		os.Getpid(): "is not that of the container",
	} {
		c, err := openRouteCounters(pid)
		require.ErrorContains(t, err, want)
		require.Nil(t, c)
	}
}

func TestParseCounters(t *testing.T) {
	for head, parse := range map[string]func(string) (int64, error){
		"Ip: Forwarding OutNoRoutes FragOKs\n":      parseNoRoutes,
		"IpExt: InNoRoutes OutMcastPkts InOctets\n": parseMulticast,
	} {
		row, _, _ := strings.Cut(head, " ")
		for text, want := range map[string]int64{head + row + " 1 7 2\nIcmp: InMsgs\nIcmp: 3\n": 7, "X: 1\n" + head + row + " 1 0 2\n": 0} {
			n, err := parse(text)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
		for _, text := range []string{"", head, head + row + " 1\n", head + row + " 1 x 2\n", row + " Forwarding\n" + row + " 1\n"} {
			_, err := parse(text)
			require.Error(t, err, text)
		}
	}
	n, err := parseSNMP6("Ip6InReceives \t9\nIp6OutNoRoutes                  \t5\n")
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
	for _, text := range []string{"", "Ip6OutNoRoutes\n", "Ip6OutNoRoutes x\n", "Ip6OutNoRoutesX 1\n"} {
		_, err := parseSNMP6(text)
		require.Error(t, err, text)
	}
}
