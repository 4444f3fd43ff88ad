package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// decodeJob parses a JOB payload by init's rules, as a reference implementation in Go.
func decodeJob(payload []byte) (Job, error) {
	var j Job
	seen := map[uint16]bool{}
	le := binary.LittleEndian
	sizes := map[uint16]int{1: nonceSize, 5: 8, 6: 8, 7: 24, 8: 4, 9: 4, 11: 16, 12: 8, 17: 8}
	duration := func(v []byte) (time.Duration, error) {
		ms := le.Uint64(v)
		if ms >= 1<<40 {
			return 0, errors.New("too long")
		}
		return time.Duration(ms) * time.Millisecond, nil
	}
	for tag, value := range fields(payload) {
		if size, fixed := sizes[tag]; fixed && len(value) != size || tag == 0 || tag == 14 || tag > 17 || seen[tag] && tag != 2 && tag != 3 && tag != 7 && tag != 16 {
			return j, errors.New("field")
		}
		seen[tag] = true
		var err error
		switch tag {
		case 1:
			j.Nonce = Nonce(value)
		case 2:
			j.Args = append(j.Args, string(value))
		case 3:
			j.Env = append(j.Env, string(value))
		case 4:
			j.Dir = string(value)
		case 5:
			j.Timeout, err = duration(value)
		case 6:
			j.Grace, err = duration(value)
		case 7:
			j.Rlimits = append(j.Rlimits, Rlimit{le.Uint32(value), le.Uint64(value[8:]), le.Uint64(value[16:])})
			if le.Uint32(value[4:]) != 0 {
				err = errors.New("reserved")
			}
		case 8:
			j.OOMScoreAdj = int(int32(le.Uint32(value))) // a signed 32-bit number
		case 9:
			flags := le.Uint32(value)
			j.NoFork, j.Stdin = flags&1 != 0, flags&2 != 0
			if flags > 3 {
				err = errors.New("flag")
			}
		case 10:
			if len(value) < 8 || le.Uint32(value[4:]) != 0 {
				return j, errors.New("relay")
			}
			j.Relay = &Relay{le.Uint16(value), le.Uint16(value[2:]), string(value[8:])}
		case 11:
			j.SoftLead, err = duration(value)
			j.SoftSignal = syscall.Signal(le.Uint32(value[8:]))
			if j.SoftLead == 0 || j.SoftSignal <= 0 || le.Uint32(value[12:]) != 0 {
				err = errors.New("soft")
			}
		case 12:
			j.OrphanLimit, err = duration(value)
		case 13:
			j.DeadlineVar = string(value)
			if j.DeadlineVar == "" {
				err = errors.New("name")
			}
		case 15:
			j.Scratch = string(value)
			if j.Scratch == "" {
				err = errors.New("scratch")
			}
		case 16:
			path, target, _ := strings.Cut(string(value), "\x00")
			j.Aliases = append(j.Aliases, Alias{path, target})
		case 17:
			thousandths := le.Uint64(value)
			j.Processors = float64(thousandths) / 1000
			if thousandths == 0 || thousandths > math.MaxUint32 {
				err = errors.New("processors")
			}
		}
		if err != nil {
			return j, err
		}
	}
	if !seen[1] || !seen[2] || !seen[4] {
		return j, errors.New("missing")
	}
	return j, j.check()
}

func TestJobRoundTrip(t *testing.T) {
	for name, job := range map[string]Job{
		"least": {Args: []string{"true"}, Dir: "/"},
		"all": {Nonce: NewNonce(), Args: []string{"a", "", "b c"}, Env: []string{"A=1", "B==", "C="}, Dir: "/x", Timeout: time.Second, Grace: time.Millisecond,
			SoftLead: 999 * time.Millisecond, SoftSignal: 64, OrphanLimit: time.Hour, DeadlineVar: "D", Scratch: "/x", Aliases: []Alias{{"/x/a", "final"}, {"/y", "."}},
			Rlimits: []Rlimit{{1, 2, 3}, {15, math.MaxUint64, math.MaxUint64}}, OOMScoreAdj: -7, NoFork: true, Stdin: true, Processors: 1.5, Relay: &Relay{80, 3, "/sock"}},
	} {
		t.Run(name, func(t *testing.T) {
			frame, err := job.Encode()
			require.NoError(t, err)
			require.Equal(t, byte(typeJob), frame[5])
			got, err := decodeJob(frame[headerSize:])
			require.NoError(t, err)
			assert.Equal(t, job, got)
		})
	}
}

func TestJobErrors(t *testing.T) {
	for says, change := range map[string]func(*Job){
		"needs a command":   func(j *Job) { j.Args = nil },
		"a job needs":       func(j *Job) { j.Args[0] = "" },
		`argument "a\x00b"`: func(j *Job) { j.Args = append(j.Args, "a\x00b") },
		`directory "y" is`:  func(j *Job) { j.Scratch = "y" },
		`alias "a"`:         func(j *Job) { j.Aliases = []Alias{{"a", "b"}} },
		`alias "/a" of ""`:  func(j *Job) { j.Aliases = []Alias{{"/a", ""}} },
		`alias "/a\x00"`:    func(j *Job) { j.Aliases = []Alias{{"/a\x00", "b"}} },
		`variable "A"`:      func(j *Job) { j.Env = []string{"A"} },
		`variable "" is`:    func(j *Job) { j.Env = []string{"=A"} },
		`"A" is not NAME=`:  func(j *Job) { j.Env = []string{"A=\x00"} },
		`directory ""`:      func(j *Job) { j.Dir = "" },
		`directory "x"`:     func(j *Job) { j.Dir = "x" },
		"negative duration": func(j *Job) { j.Grace = -1 },
		"soft lead -1ns":    func(j *Job) { j.SoftLead = -1 },
		"orphan limit -1ns": func(j *Job) { j.OrphanLimit = -1 },
		"a soft signal 1s before a time limit of 1s":  func(j *Job) { j.Timeout, j.SoftLead, j.SoftSignal = time.Second, time.Second, 15 },
		"a soft signal 1ms before a time limit of 0s": func(j *Job) { j.SoftLead, j.SoftSignal = time.Millisecond, 15 },
		"soft signal 0":     func(j *Job) { j.Timeout, j.SoftLead = time.Second, time.Millisecond },
		"soft signal 65":    func(j *Job) { j.Timeout, j.SoftLead, j.SoftSignal = time.Second, time.Millisecond, 65 },
		`variable "A=B"`:    func(j *Job) { j.Timeout, j.DeadlineVar = time.Second, "A=B" },
		"does not exist":    func(j *Job) { j.DeadlineVar = "A" },
		"limit 16":          func(j *Job) { j.Rlimits = []Rlimit{{Resource: 16}} },
		"soft 2 and hard 1": func(j *Job) { j.Rlimits = []Rlimit{{0, 2, 1}} },
		"OOM score 1001":    func(j *Job) { j.OOMScoreAdj = 1001 },
		"from port 0":       func(j *Job) { j.Relay = &Relay{0, 1, "/s"} },
		"relay of 0":        func(j *Job) { j.Relay = &Relay{1, 0, "/s"} },
		`port 1 to ""`:      func(j *Job) { j.Relay = &Relay{1, 1, ""} },
		"at most 107 bytes": func(j *Job) { j.Relay = &Relay{1, 1, "/" + strings.Repeat("s", 107)} },
		"a job of 4194":     func(j *Job) { j.Args = append(j.Args, strings.Repeat("a", 4<<20)) },
	} {
		t.Run(says, func(t *testing.T) {
			j := Job{Args: []string{"true"}, Dir: "/"}
			change(&j)
			_, err := j.Encode()
			require.ErrorContains(t, err, says)
		})
	}
}

func TestJobKeepsTheLastOfEachVariable(t *testing.T) {
	frame, err := Job{Args: []string{"true"}, Dir: "/", Env: []string{"A=1", "B=2", "A=3", "AB=4", "A=5"}}.Encode()
	require.NoError(t, err)
	got, err := decodeJob(frame[headerSize:])
	require.NoError(t, err)
	assert.Equal(t, []string{"B=2", "AB=4", "A=5"}, got.Env)
	frame, err = Job{Args: []string{"true"}, Dir: "/", Env: []string{"A=1", "AB=4"}, Timeout: time.Second, DeadlineVar: "A"}.Encode()
	require.NoError(t, err)
	got, err = decodeJob(frame[headerSize:])
	require.NoError(t, err)
	assert.Equal(t, []string{"AB=4"}, got.Env, "init sets the deadline variable")
}

func TestMillisecondsRoundUp(t *testing.T) {
	for d, want := range map[time.Duration]uint64{0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Hour: 3_600_000, math.MaxInt64: 9223372036855} {
		assert.Equal(t, want, binary.LittleEndian.Uint64(milliseconds(d)), "%v", d)
	}
}

func TestNonce(t *testing.T) {
	a, b := NewNonce(), NewNonce()
	assert.Zero(t, a[0])
	assert.NotEqual(t, a, b)
	got, err := ParseNonce(a.String())
	require.NoError(t, err)
	assert.Equal(t, a, got)
	for _, text := range []string{"", "00", a.String() + "0", strings.Repeat("x", 64)} {
		_, err := ParseNonce(text)
		require.Error(t, err, text)
	}
}

// partly fails after the given number of writes.
type partly struct {
	bytes.Buffer
	writes int
}

func (p *partly) Write(b []byte) (int, error) {
	if p.writes--; p.writes < 0 {
		return 0, io.ErrClosedPipe
	}
	return p.Buffer.Write(b)
}

func TestInputWriter(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789"), 20_000)
	to := &partly{writes: 100}
	w := InputWriter(to)
	n, err := w.Write(text)
	require.NoError(t, err)
	require.Equal(t, len(text), n)
	_, err = w.Write(nil) // does not end the input
	require.NoError(t, err)
	require.NoError(t, w.Close())
	var got []byte
	ends := 0
	for p := to.Bytes(); len(p) > 0; {
		size := int(binary.LittleEndian.Uint32(p[8:]))
		require.LessOrEqual(t, size, maxInput)
		require.Equal(t, byte(typeInput), p[5])
		got = append(got, p[headerSize:headerSize+size]...)
		if p = p[headerSize+size:]; size == 0 {
			ends++
			require.Empty(t, p)
		}
	}
	assert.Equal(t, 1, ends)
	assert.Equal(t, text, got)

	n, err = InputWriter(&partly{writes: 2}).Write(text)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	assert.Equal(t, 2*maxInput, n)
}

func TestInitOfArchitectures(t *testing.T) {
	amd64, err := Init("amd64")
	require.NoError(t, err)
	same, err := Init("x86_64")
	require.NoError(t, err)
	assert.Equal(t, amd64, same)
	arm64, err := Init("arm64")
	require.NoError(t, err)
	same, err = Init("aarch64")
	require.NoError(t, err)
	assert.Equal(t, arm64, same)
	for name, binary := range map[string][]byte{"amd64": amd64, "arm64": arm64} {
		assert.Equal(t, "\x7fELF\x02\x01", string(binary[:6]), name)
		assert.Contains(t, string(binary), BuildID(), name)
		assert.Less(t, len(binary), 64<<10, name)
	}
	_, err = Init("riscv64")
	require.ErrorContains(t, err, `"riscv64"`)
	assert.Len(t, BuildID(), 64)
}
