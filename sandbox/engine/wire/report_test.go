package wire

import (
	"encoding/binary"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func words(values ...uint64) []byte {
	var p []byte
	for _, v := range values {
		p = binary.LittleEndian.AppendUint64(p, v)
	}
	return p
}

func counterFile(name, content string) []byte {
	return appendField(nil, 9, []byte("/sys/fs/cgroup/"+name+"\x00"+content))
}

func reportWith(more ...[]byte) []byte {
	p := reportPayload(3)
	for _, f := range more {
		p = append(p, f...)
	}
	return p
}

func TestParseReport(t *testing.T) {
	word := func(n byte) []byte { return []byte{n, 0, 0, 0} }
	p := appendField(nil, 1, word(3))
	p = appendField(p, 2, word(1))
	p = appendField(p, 3, word(2))
	p = appendField(p, 4, words(uint64(2*time.Second)))
	p = appendField(p, 5, words(1_000_000, 500_000, 2048))
	p = appendField(p, 6, word(1))
	p = appendField(p, 7, word(1))
	p = appendField(p, 8, word(4))
	p = appendField(p, 10, words(uint64(5*time.Second), uint64(7*time.Second)))
	p = appendField(p, 11, word(1))
	p = appendField(p, 12, word(7))
	p = appendField(p, 13, words(uint64(3*time.Second)))
	p = appendField(p, 18, words(1, 2, 3, 4))
	p = appendField(p, 19, words(uint64(time.Second)))
	r, err := parseReport(appendField(p, 99, []byte("of a later version")))
	require.NoError(t, err)
	assert.Equal(t, Report{
		Kind: NotStarted, Value: 1, Stage: 2, Resource: 7, Wall: 2 * time.Second, Started: time.Unix(5, 0).UTC(), Finished: time.Unix(7, 0).UTC(),
		Stop: StopDeadline, SoftAfter: 3 * time.Second, Escalated: true, ProcessesLeft: 4, Abandoned: true, Usage: Usage{CPU: 1500 * time.Millisecond, PeakMemory: 2 << 20, Source: "rusage"},
		Share: Share{Known: true, Ran: 1, Waited: 2, Lacked: 3, Available: 4, Gap: time.Second},
	}, r)
	assert.Equal(t, syscall.Errno(1), r.Errno())
	assert.Equal(t, "rlimit", r.Stage.String())
	assert.Equal(t, "stage 77", Stage(77).String())
}

func TestParseReportErrors(t *testing.T) {
	for name, payload := range map[string][]byte{
		"empty":              {},
		"kind 4":             appendField(appendField(nil, 1, []byte{4, 0, 0, 0}), 2, make([]byte, 4)),
		"no value":           appendField(nil, 1, []byte{1, 0, 0, 0}),
		"kind twice":         append(reportPayload(1), reportPayload(1)...),
		"no stage":           appendField(appendField(appendField(nil, 1, []byte{3, 0, 0, 0}), 2, make([]byte, 4)), 4, make([]byte, 8)),
		"a short wall":       reportWith(appendField(nil, 5, make([]byte, 8))),
		"stop 5":             reportWith(appendField(nil, 6, []byte{5, 0, 0, 0})),
		"soft after 0":       reportWith(appendField(nil, 13, words(0))),
		"soft backwards":     reportWith(appendField(nil, 13, words(1<<63))),
		"a cut field":        reportWith([]byte{9, 0, 0, 0, 1, 0, 0, 0}),
		"a short flag":       reportWith(appendField(nil, 7, []byte{1})),
		"a short share":      reportWith(appendField(nil, 18, words(1, 2))),
		"a short gap":        reportWith(appendField(nil, 19, []byte{1})),
		"a nameless file":    reportWith(appendField(nil, 9, []byte("x"))),
		"one time":           reportWith(appendField(nil, 10, make([]byte, 8))),
		"time backwards":     appendField(appendField(appendField(nil, 1, []byte{1, 0, 0, 0}), 2, make([]byte, 4)), 4, words(1<<63)),
		"bytes of the magic": []byte("\x00EBX\x01\x03\x00\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseReport(payload)
			require.ErrorIs(t, err, errFormat)
		})
	}
}

func TestCounters(t *testing.T) {
	rusage := appendField(nil, 5, words(1, 2, 3))
	for name, test := range map[string]struct {
		files [][]byte
		want  Usage
	}{
		"version 1": {[][]byte{counterFile("memory/memory.max_usage_in_bytes", "4096\n"), counterFile("cpuacct/cpuacct.usage", "1500\n"),
			counterFile("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")},
			Usage{CPU: 1500, PeakMemory: 4096, OOMKills: 2, Source: "cgroup v1"}},
		"version 1, joined": {[][]byte{counterFile("memory/memory.max_usage_in_bytes", "4096\n"), counterFile("cpu,cpuacct/cpuacct.usage", "1500\n")},
			Usage{CPU: 1500, PeakMemory: 4096, Source: "cgroup v1"}},
		"version 2": {[][]byte{counterFile("memory.peak", "4096\n"), counterFile("memory.current", "1\n"), counterFile("cpu.stat", "usage_usec 7\nuser_usec 3\n"),
			counterFile("memory.events", "low 0\nmax 5\noom 3\noom_kill 2\noom_group_kill 0\n")},
			Usage{CPU: 7 * time.Microsecond, PeakMemory: 4096, OOMKills: 2, Source: "cgroup v2"}},
		"version 2, old":      {[][]byte{counterFile("memory.current", "4096\n"), counterFile("cpu.stat", "usage_usec 7\n")}, Usage{CPU: 7 * time.Microsecond, PeakMemory: 4096, Source: "cgroup v2"}},
		"a part of version 1": {[][]byte{counterFile("memory/memory.max_usage_in_bytes", "4096\n")}, Usage{CPU: 3 * time.Microsecond, PeakMemory: 3 << 10, Source: "rusage"}},
		"nothing":             {nil, Usage{CPU: 3 * time.Microsecond, PeakMemory: 3 << 10, Source: "rusage"}},
		"nonsense":            {[][]byte{counterFile("cpu.stat", "lots"), counterFile("memory.peak", "lots")}, Usage{CPU: 3 * time.Microsecond, PeakMemory: 3 << 10, Source: "rusage"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parseReport(reportWith(append(test.files, rusage)...))
			require.NoError(t, err)
			assert.Equal(t, test.want, r.Usage)
		})
	}
}

// TestPressure: what the program lacked while its interpreter waited for it is not its own.
func TestPressure(t *testing.T) {
	before := func(name, content string) []byte {
		return appendField(nil, 15, []byte("/sys/fs/cgroup/"+name+"\x00"+content))
	}
	for name, test := range map[string]struct {
		files [][]byte
		want  Share
	}{
		"version 1":         {[][]byte{counterFile("cpu/cpu.stat", "nr_throttled 3\nthrottled_time 1500\n")}, Share{Throttled: 1500}},
		"version 1, joined": {[][]byte{counterFile("cpu,cpuacct/cpu.stat", "throttled_time 1500\n")}, Share{Throttled: 1500}},
		"version 2": {[][]byte{counterFile("cpu.stat", "usage_usec 7\nthrottled_usec 5\n"),
			counterFile("cpu.pressure", "some avg10=81.93 avg60=87.13 avg300=47.29 total=2004\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n")},
			Share{Throttled: 5 * time.Microsecond, Pressure: 2004 * time.Microsecond}},
		"since the job": {[][]byte{counterFile("cpu.pressure", "some total=7\n"), before("cpu.pressure", "some total=3\n"),
			counterFile("cpu.stat", "throttled_usec 9\n"), before("cpu.stat", "throttled_usec 4\n")}, Share{Throttled: 5 * time.Microsecond, Pressure: 4 * time.Microsecond}},
		"nonsense": {[][]byte{counterFile("cpu.pressure", "some total=lots\n"), counterFile("cpu/cpu.stat", "throttled_time -5\n")}, Share{}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parseReport(reportWith(test.files...))
			require.NoError(t, err)
			assert.Equal(t, test.want, r.Share)
		})
	}
}

func FuzzReport(f *testing.F) {
	f.Add(reportPayload(1))
	f.Add(reportWith(appendField(nil, 6, []byte{4, 0, 0, 0}), appendField(nil, 13, words(1))))
	f.Add(reportWith(appendField(nil, 5, words(1, 2, 3)), counterFile("cpu.stat", "usage_usec 7"), counterFile("memory.peak", "5"), appendField(nil, 10, words(1, 2))))
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := parseReport(payload)
		if err != nil {
			return
		}
		if r.Kind < Exited || r.Kind > NotStarted || r.Wall < 0 || r.SoftAfter < 0 || r.Value < 0 || r.ProcessesLeft < 0 || r.Usage.CPU < 0 || r.Usage.PeakMemory < 0 || r.Usage.OOMKills < 0 ||
			min(r.Share.Ran, r.Share.Waited, r.Share.Lacked, r.Share.Available, r.Share.Gap, r.Share.Throttled, r.Share.Pressure) < 0 {
			t.Fatalf("%+v", r)
		}
	})
}
