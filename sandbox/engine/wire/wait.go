package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// Wait is a process that waits for the job: an interpreter that has imported modules, and that
// becomes the program. Init starts it like a program, except that its output is discarded.
//
// It has two more descriptors. File is at [WaiterFile]. At [WaiterLine] is a socket of
// sequenced packets to init. The process sends "R" when it is ready. Then it receives one byte
// with three descriptors (SCM_RIGHTS): a file with the job, and the stdout and stderr of the program.
// The job is the number of arguments in 4 bytes, the arguments and the environment, each with a
// zero byte at its end. The process answers "T" and is the program from then on. "N" and a text
// of at most 512 bytes, at any time before, says that it cannot be the program; its end says the
// same.
type Wait struct {
	Args, Env []string
	Dir       string
	// Patience is how long the process may take to be ready.
	Patience      time.Duration
	OOMScoreAdj   int
	NoFork, Stdin bool
	File          []byte
}

// Descriptors of a waiting process.
const (
	WaiterLine = 62
	WaiterFile = 63
)

// Encode returns the frame. It fails for a process that init would refuse.
func (w Wait) Encode() ([]byte, error) {
	if err := checkProcess(w.Args, w.Env, w.Dir); err != nil {
		return nil, fmt.Errorf("the waiting process: %w", err)
	}
	var p []byte
	for _, arg := range w.Args {
		p = appendField(p, 2, []byte(arg))
	}
	for _, pair := range lastOfEach(w.Env) {
		p = appendField(p, 3, []byte(pair))
	}
	p = appendField(p, 4, []byte(w.Dir))
	p = appendField(p, 5, milliseconds(w.Patience))
	if w.OOMScoreAdj != 0 {
		p = appendField(p, 8, binary.LittleEndian.AppendUint32(nil, uint32(int32(w.OOMScoreAdj))))
	}
	p = appendField(p, 9, flags(w.NoFork, w.Stdin))
	p = appendField(p, 14, w.File)
	if len(p) > maxJob {
		return nil, fmt.Errorf("a waiting process of %d bytes: at most %d are possible", len(p), maxJob)
	}
	return newFrame(typeWait, p), nil
}

// Waiter says whether the waiting process became the program.
type Waiter struct {
	cause, value, errno uint32
	reason              string
}

// parseWaiting parses the answer to [Wait].
func parseWaiting(payload []byte) (Usage, error) {
	files := map[string]string{}
	for tag, value := range fields(payload) {
		if tag == 0 || tag == 1 && !addFile(files, value) {
			return Usage{}, fmt.Errorf("%w: field %d of the answer", errFormat, tag)
		}
	}
	usage, _ := counters(files)
	return usage, nil
}

// Causes of a waiting process that is not waiting any more, as in init.
const (
	waiterRan = iota + 1
	waiterSaidNo
	waiterEnded
	waiterNotExecuted
	waiterNotReady
	waiterNotHanded
	waiterUnwanted
)

func parseWaiter(value []byte) (*Waiter, bool) {
	if len(value) < 12 || len(value) > 12+512 {
		return nil, false
	}
	le := binary.LittleEndian
	w := &Waiter{cause: le.Uint32(value), value: le.Uint32(value[4:]), errno: le.Uint32(value[8:]), reason: string(value[12:])}
	return w, w.cause >= waiterRan && w.cause <= waiterUnwanted
}

// WhyNot says in one line why the waiting process did not become the program. It is empty if it
// did, or if there was none. Text of the process is quoted.
func (w *Waiter) WhyNot() string {
	if w == nil || w.cause == waiterRan {
		return ""
	}
	switch w.cause {
	case waiterSaidNo:
		return cmp.Or(clean(w.reason), "it refused without a reason")
	case waiterEnded:
		if signal := w.value & 0x7f; signal != 0 {
			return fmt.Sprintf("it was killed by signal %d", signal)
		}
		return fmt.Sprintf("it ended with exit code %d", w.value>>8&0xff)
	case waiterNotExecuted:
		return fmt.Sprintf("it could not be started: %v: %v", Stage(w.value), syscall.Errno(w.errno))
	case waiterNotReady:
		return "it was not ready in time"
	case waiterNotHanded:
		return "it did not take the program"
	}
	return "the program was not for it"
}

// clean makes one line of a text of the container.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == utf8.RuneError || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}
