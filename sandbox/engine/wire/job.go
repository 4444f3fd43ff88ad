package wire

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Nonce is the end mark of the streams of one job. The program never has it.
type Nonce [nonceSize]byte

// NewNonce returns a random nonce. Its first byte is zero: text does not contain zeros, so
// the end of the output so far is hardly ever held back.
func NewNonce() Nonce {
	var n Nonce
	if _, err := rand.Read(n[1:]); err != nil {
		panic(err) // crypto/rand never fails since Go 1.24
	}
	return n
}

func (n Nonce) String() string { return hex.EncodeToString(n[:]) }

// ParseNonce parses the output of [Nonce.String].
func ParseNonce(text string) (Nonce, error) {
	var n Nonce
	if len(text) != 2*nonceSize {
		return n, fmt.Errorf("nonce of %d digits: %w", len(text), errFormat)
	}
	_, err := hex.Decode(n[:], []byte(text))
	return n, err
}

// Job is one program for init to run.
type Job struct {
	Nonce Nonce
	// Args begins with the command, which is looked up in the PATH of the program's
	// environment unless it contains a slash.
	Args []string
	// Env is added to init's own environment, and replaces variables of the same name.
	Env []string
	Dir string
	// Timeout is the time limit, 0 for none; Grace is the time between SIGTERM and
	// SIGKILL. Both are rounded up to milliseconds.
	Timeout, Grace time.Duration
	// SoftLead, unless 0, is how long before its time limit the main process gets
	// SoftSignal (Linux's number), once, as a request to finish. It is rounded up to
	// milliseconds.
	SoftLead   time.Duration
	SoftSignal syscall.Signal
	// OrphanLimit, unless 0, bounds the time that remains when the controller disconnects
	// before the end. The soft signal then comes by the new limit. It is rounded up to
	// milliseconds.
	OrphanLimit time.Duration
	// DeadlineVar, unless empty, is the name of a variable that init adds to the program's
	// environment: the time at which its time limit ends, in seconds since 1970 with three
	// decimals, by the wall clock of the container's machine. An OrphanLimit does not
	// change it.
	DeadlineVar string
	Rlimits     []Rlimit
	// Aliases are symbolic links that init makes, in this order, before the program starts. It
	// also makes the directories that they need.
	Aliases []Alias
	// Scratch, unless empty, is the directory whose files the report counts: see [Left].
	Scratch string
	// OOMScoreAdj is oom_score_adj of proc(5); 0 inherits init's.
	OOMScoreAdj int
	// Processors is how many processors the container may use, for [Share.Lacked]; 0 for those of
	// the machine.
	Processors float64
	// NoFork forbids new processes; Stdin says that INPUT frames follow.
	NoFork, Stdin bool
	// ToWaiter says that the waiting process of [Wait] becomes the program, if it can.
	ToWaiter bool
	Relay    *Relay
}

// Alias is a symbolic link at an absolute path.
type Alias struct{ Path, Target string }

// Rlimit is one limit of setrlimit(2), by the kernel's number.
type Rlimit struct {
	Resource   uint32
	Soft, Hard uint64
}

// FileSize is the limit of the size of a file (RLIMIT_FSIZE), in bytes.
func FileSize(soft, hard int64) Rlimit {
	const resource = 1 // on amd64 and arm64
	return Rlimit{Resource: resource, Soft: uint64(soft), Hard: uint64(hard)}
}

// Relay forwards connections to a port of 127.0.0.1 to a Unix socket.
type Relay struct {
	Port, Connections uint16
	Socket            string
}

// Encode returns the frame of a job. It fails for a job that init would refuse, with a more
// detailed error.
func (j Job) Encode() ([]byte, error) {
	if err := j.check(); err != nil {
		return nil, err
	}
	p := appendField(nil, 1, j.Nonce[:])
	for _, arg := range j.Args {
		p = appendField(p, 2, []byte(arg))
	}
	for _, pair := range lastOfEach(j.Env) {
		if j.DeadlineVar != "" && strings.HasPrefix(pair, j.DeadlineVar+"=") {
			continue // init adds it
		}
		p = appendField(p, 3, []byte(pair))
	}
	p = appendField(p, 4, []byte(j.Dir))
	p = appendField(p, 5, milliseconds(j.Timeout))
	p = appendField(p, 6, milliseconds(j.Grace))
	for _, l := range j.Rlimits {
		v := binary.LittleEndian.AppendUint64(nil, uint64(l.Resource))
		v = binary.LittleEndian.AppendUint64(v, l.Soft)
		p = appendField(p, 7, binary.LittleEndian.AppendUint64(v, l.Hard))
	}
	if j.OOMScoreAdj != 0 {
		p = appendField(p, 8, binary.LittleEndian.AppendUint32(nil, uint32(int32(j.OOMScoreAdj))))
	}
	p = appendField(p, 9, flags(j.NoFork, j.Stdin, j.ToWaiter))
	if r := j.Relay; r != nil {
		v := binary.LittleEndian.AppendUint16(nil, r.Port)
		v = binary.LittleEndian.AppendUint16(v, r.Connections)
		p = appendField(p, 10, append(append(v, 0, 0, 0, 0), r.Socket...))
	}
	if j.SoftLead > 0 {
		v := append(milliseconds(j.SoftLead), byte(j.SoftSignal), 0, 0, 0, 0, 0, 0, 0)
		p = appendField(p, 11, v)
	}
	if j.OrphanLimit > 0 {
		p = appendField(p, 12, milliseconds(j.OrphanLimit))
	}
	if j.DeadlineVar != "" {
		p = appendField(p, 13, []byte(j.DeadlineVar))
	}
	if j.Scratch != "" {
		p = appendField(p, 15, []byte(j.Scratch))
	}
	for _, a := range j.Aliases {
		p = appendField(p, 16, []byte(a.Path+"\x00"+a.Target))
	}
	if j.Processors > 0 {
		thousandths := min(max(uint64(j.Processors*1000), 1), math.MaxUint32)
		p = appendField(p, 17, binary.LittleEndian.AppendUint64(nil, thousandths))
	}
	if len(p) > maxJob {
		return nil, fmt.Errorf("a job of %d bytes: at most %d are possible", len(p), maxJob)
	}
	return newFrame(typeJob, p), nil
}

// flags encodes flags, the lowest bit first.
func flags(set ...bool) []byte {
	var bits uint32
	for i, is := range set {
		if is {
			bits |= 1 << i
		}
	}
	return binary.LittleEndian.AppendUint32(nil, bits)
}

// milliseconds rounds up, because 0 means no limit.
func milliseconds(d time.Duration) []byte {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return binary.LittleEndian.AppendUint64(nil, uint64(ms))
}

// Limits of values, as in init.
const (
	maxResource = 16
	maxOOMScore = 1000
	maxSignal   = 64
	// maxSocket is the length of sun_path of unix(7), without the terminating zero.
	maxSocket = 107
)

// check returns an error for a job that init would refuse.
func (j Job) check() error {
	if err := checkProcess(j.Args, j.Env, j.Dir); err != nil {
		return err
	}
	if err := j.checkTimes(); err != nil {
		return err
	}
	if j.Scratch != "" && (!strings.HasPrefix(j.Scratch, "/") || strings.ContainsRune(j.Scratch, 0)) {
		return fmt.Errorf("the directory %q is not an absolute path", j.Scratch)
	}
	for _, a := range j.Aliases {
		if len(a.Path) < 2 || a.Path[0] != '/' || a.Target == "" || strings.ContainsRune(a.Path+a.Target, 0) {
			return fmt.Errorf("the alias %q of %q needs an absolute path and a target", a.Path, a.Target)
		}
	}
	for _, l := range j.Rlimits {
		if l.Resource >= maxResource || l.Soft > l.Hard {
			return fmt.Errorf("limit %d of soft %d and hard %d: there are %d limits, and a soft one is at most the hard one", l.Resource, l.Soft, l.Hard, maxResource)
		}
	}
	if j.OOMScoreAdj < -maxOOMScore || j.OOMScoreAdj > maxOOMScore {
		return fmt.Errorf("the OOM score %d is not within ±%d", j.OOMScoreAdj, maxOOMScore)
	}
	return j.Relay.check()
}

func checkProcess(args, env []string, dir string) error {
	if len(args) == 0 || args[0] == "" {
		return errors.New("a job needs a command")
	}
	for _, arg := range args {
		if strings.ContainsRune(arg, 0) {
			return fmt.Errorf("the argument %q holds a zero byte", arg)
		}
	}
	for _, pair := range env {
		if strings.IndexByte(pair, '=') <= 0 || strings.ContainsRune(pair, 0) {
			name, _, _ := strings.Cut(pair, "=") // the value may be a secret
			return fmt.Errorf("the variable %q is not NAME=value", name)
		}
	}
	if !strings.HasPrefix(dir, "/") || strings.ContainsRune(dir, 0) {
		return fmt.Errorf("the working directory %q is not an absolute path", dir)
	}
	return nil
}

func (j Job) checkTimes() error {
	if j.Timeout < 0 || j.Grace < 0 || j.SoftLead < 0 || j.OrphanLimit < 0 {
		return fmt.Errorf("a negative duration: timeout %v, grace %v, soft lead %v, orphan limit %v", j.Timeout, j.Grace, j.SoftLead, j.OrphanLimit)
	}
	// Both are rounded up before init compares them.
	if j.SoftLead > 0 && j.SoftLead > j.Timeout-time.Millisecond {
		return fmt.Errorf("a soft signal %v before a time limit of %v: it must be within the time limit", j.SoftLead, j.Timeout)
	}
	if j.SoftLead > 0 && (j.SoftSignal <= 0 || j.SoftSignal > maxSignal) {
		return fmt.Errorf("the soft signal %d is not between 1 and %d", j.SoftSignal, maxSignal)
	}
	if strings.ContainsAny(j.DeadlineVar, "=\x00") {
		return fmt.Errorf("the variable %q is not a name", j.DeadlineVar)
	}
	if j.DeadlineVar != "" && j.Timeout == 0 {
		return fmt.Errorf("the variable %s for a time limit that does not exist", j.DeadlineVar)
	}
	return nil
}

func (r *Relay) check() error {
	if r == nil {
		return nil
	}
	if r.Port == 0 || r.Connections == 0 || r.Socket == "" || len(r.Socket) > maxSocket || strings.ContainsRune(r.Socket, 0) {
		return fmt.Errorf("a relay of %d connections from port %d to %q: all three must be there, and a path has at most %d bytes", r.Connections, r.Port, r.Socket, maxSocket)
	}
	return nil
}

// lastOfEach drops variables that a later one replaces: programs differ in which of two
// duplicates they use.
func lastOfEach(env []string) []string {
	seen := make(map[string]bool, len(env))
	var kept []string
	for _, pair := range slices.Backward(env) {
		if name, _, _ := strings.Cut(pair, "="); !seen[name] {
			seen[name] = true
			kept = append(kept, pair)
		}
	}
	slices.Reverse(kept)
	return kept
}

// InputWriter returns a writer to the program's stdin, which sends INPUT frames. Close ends
// the stdin; it does not close the underlying writer.
func InputWriter(to io.Writer) io.WriteCloser { return inputWriter{to} }

type inputWriter struct{ to io.Writer }

func (w inputWriter) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 {
		n := min(len(p), maxInput)
		if _, err := w.to.Write(newFrame(typeInput, p[:n])); err != nil {
			return written, err
		}
		written, p = written+n, p[n:]
	}
	return written, nil
}

func (w inputWriter) Close() error {
	_, err := w.to.Write(newFrame(typeInput, nil))
	return err
}

// errRefused means that init refused the job, because it is malformed or not a job at all.
var errRefused = errors.New("init refused the job")
