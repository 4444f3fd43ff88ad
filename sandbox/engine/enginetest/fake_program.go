package enginetest

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Program is the view that the function of a [Fake] has of its container.
type Program struct {
	Job   spec.Job
	Class spec.Class
	Meta  engine.Meta

	c     *container
	stdin *input
	// term is closed by SIGTERM, dead when the program is killed or has ended.
	term, dead         chan struct{}
	termOnce, deadOnce sync.Once
	soft               chan struct{}
	initKilled         chan struct{}
	initOnce           sync.Once
	deadline           time.Time // by the machine's clock

	changes []func(end *engine.End)
}

func newProgram(c *container, job spec.Job) *Program {
	meta := c.meta
	meta.Sources = c.sources()
	return &Program{Job: job, Class: c.class, Meta: meta, c: c, stdin: newInput(),
		term: make(chan struct{}), dead: make(chan struct{}), soft: make(chan struct{}), initKilled: make(chan struct{}),
		deadline: time.Now().Add(seconds(job.TimeoutSeconds))}
}

// warn sends the soft signal.
func (p *Program) warn() {
	close(p.soft)
	if p.Job.SoftSignal == "SIGTERM" {
		p.terminate()
	}
}

func (p *Program) terminate() { p.termOnce.Do(func() { close(p.term) }) }

func (p *Program) die() {
	p.deadOnce.Do(func() {
		close(p.dead)
		_ = p.stdin.r.CloseWithError(io.ErrClosedPipe) // never fails
	})
}

// Print writes to stdout, and returns once the text was passed on.
func (p *Program) Print(text string) { _, _ = p.Stdout().Write([]byte(text)) }

// PrintErr writes to stderr.
func (p *Program) PrintErr(text string) { _, _ = p.Stderr().Write([]byte(text)) }

func (p *Program) Stdout() io.Writer { return output{p, false} }
func (p *Program) Stderr() io.Writer { return output{p, true} }

// Stdin is the caller's stdin if the job asks for it; otherwise it is empty.
func (p *Program) Stdin() io.Reader { return p.stdin.r }

// Sleep waits, at most until the program is dead. In a bubble of testing/synctest, a function
// that sleeps in another way and outlives its program keeps the bubble from ending.
func (p *Program) Sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.dead:
		runtime.Goexit()
	}
}

// Term is closed by SIGTERM.
func (p *Program) Term() <-chan struct{} { return p.term }

// Soft is closed by the soft signal of the job. If that is SIGTERM, it closes Term as well.
func (p *Program) Soft() <-chan struct{} { return p.soft }

// Kill is closed when the program is killed.
func (p *Program) Kill() <-chan struct{} { return p.dead }

// KillInit kills init, and with it the container and the program.
func (p *Program) KillInit() {
	p.initOnce.Do(func() { close(p.initKilled) })
	<-p.dead
	runtime.Goexit()
}

// End changes what init reports. The program calls it before it ends.
func (p *Program) End(change func(end *engine.End)) {
	p.c.fake.mu.Lock()
	defer p.c.fake.mu.Unlock()
	p.changes = append(p.changes, change)
}

// Env returns the environment of the program: the class's, overridden by the job's.
func (p *Program) Env() map[string]string {
	env := map[string]string{}
	for _, pair := range slices.Concat(p.Class.Env, p.Job.ProgramEnv()) {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	if p.Job.TimeoutSeconds > 0 && !p.Job.NoDeadlineEnv {
		env[spec.DeadlineEnv] = fmt.Sprintf("%.3f", float64(p.deadline.UnixMilli())/1000)
	}
	return env
}

// Path returns the host path of a path in the container, or "" if it is not in a bind.
func (p *Program) Path(inside string) string { return hostPath(p.Class, p.Meta, inside) }

// Final returns the host path of a file in the output directory.
func (p *Program) Final(name string) string { return path.Join(p.Meta.Sources[spec.RoleFinal], name) }

// own gives the files in the output directory and in the trees to the container's user, if this
// process can: the function that plays the program has its own user. Files of a third user
// stay as they are.
func (p *Program) own() {
	user, group, ok := strings.Cut(p.Class.User, ":")
	uid, uidErr := strconv.Atoi(user)
	gid, gidErr := strconv.Atoi(group)
	if os.Geteuid() != 0 || !ok || uidErr != nil || gidErr != nil {
		return
	}
	for role, dir := range p.Meta.Sources {
		if role == spec.RoleFinal || strings.HasPrefix(role, spec.RoleTree+"-") {
			chownAll(dir, uid, gid)
		}
	}
}

func chownAll(dir string, uid, gid int) {
	// What vanishes meanwhile need not be given.
	_ = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		if info, err := entry.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == 0 {
				_ = os.Lchown(name, uid, gid) //nolint:gosec // G122: a directory of a test
			}
		}
		return nil
	})
}

// hostPath maps a path in a container to the host, by the deepest bind that contains it.
func hostPath(class spec.Class, meta engine.Meta, inside string) string {
	best, found := "", ""
	for _, bind := range class.Binds {
		rest, below := strings.CutPrefix(inside, bind.Target)
		if below && (rest == "" || strings.HasPrefix(rest, "/")) && len(bind.Target) >= len(best) && meta.Sources[bind.Role] != "" {
			best, found = bind.Target, path.Join(meta.Sources[bind.Role], rest)
		}
	}
	return found
}

// maxLog bounds the engine's own copy of an output, by dropping its beginning.
const maxLog = 16 << 20

// tape is the engine's copy of a job's output, and the connections to it. A write waits until
// every connection has passed it on.
type tape struct {
	mu     sync.Mutex
	size   int
	first  int // the number of the oldest chunk kept
	chunks []chunk
	closed bool
	marked bool
	// changed is closed, and replaced, at every change.
	changed chan struct{}
	readers []*connection
}

type chunk struct {
	stderr bool
	bytes  []byte
}

func newTape() *tape { return &tape{changed: make(chan struct{})} }

// wake wakes all waiting goroutines. The lock is held.
func (t *tape) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// write appends to the tape and waits for the connections, or until dead is closed. It reports
// whether the write was complete.
func (t *tape) write(stderr bool, text []byte, dead <-chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	number := t.first + len(t.chunks)
	t.chunks = append(t.chunks, chunk{stderr, slices.Clone(text)})
	t.size += len(text)
	t.wake()
	for slices.ContainsFunc(t.readers, func(c *connection) bool { return c.next <= number }) {
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-dead:
			t.mu.Lock()
			return false
		}
		t.mu.Lock()
	}
	for t.size > maxLog && len(t.chunks) > 1 {
		t.size -= len(t.chunks[0].bytes)
		t.chunks = t.chunks[1:]
		t.first++
	}
	return true
}

// close ends the tape, with or without end marks.
func (t *tape) close(marked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed, t.marked = true, marked
		t.wake()
	}
}

// connect adds a connection, which continues where the previous one was broken.
func (t *tape) connect(before *connection, stuck bool) *connection {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &connection{tape: t, stuck: stuck, done: make(chan struct{}), cut: make(chan struct{})}
	if before != nil {
		c.next = before.next
	}
	c.late = c.next < t.first
	t.readers = append(t.readers, c)
	return c
}

// connection passes a tape on, from one goroutine.
type connection struct {
	tape  *tape
	stuck bool
	next  int // the number of the next chunk
	isCut bool
	all   bool // it reached the end marks
	late  bool // the tape had lost its beginning
	// cut is closed to break it, done when it has ended.
	cut, done chan struct{}
}

// close breaks the connection.
func (c *connection) close() {
	t := c.tape
	t.mu.Lock()
	defer t.mu.Unlock()
	if !c.isCut {
		c.isCut = true
		close(c.cut)
		c.leave()
	}
}

// leave removes the connection from its tape. The lock is held.
func (c *connection) leave() {
	c.tape.readers = slices.DeleteFunc(c.tape.readers, func(other *connection) bool { return other == c })
	c.tape.wake()
}

// ended reports whether the output was read to both end marks.
func (c *connection) ended() bool {
	if c == nil {
		return false
	}
	c.tape.mu.Lock()
	defer c.tape.mu.Unlock()
	return c.all
}

func (c *connection) copy(before *connection, stdout, stderr io.Writer) {
	t := c.tape
	defer close(c.done)
	if before != nil {
		<-before.done
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if before != nil {
		c.next = before.next
	}
	for !c.isCut {
		c.next = max(c.next, t.first)
		if at := c.next - t.first; at < len(t.chunks) {
			piece := t.chunks[at]
			to := &stdout
			if piece.stderr {
				to = &stderr
			}
			t.mu.Unlock()
			if *to != nil {
				if _, err := (*to).Write(piece.bytes); err != nil {
					*to = nil
				}
			}
			t.mu.Lock()
			c.next++
			t.wake()
			continue
		}
		if t.closed && !c.stuck {
			c.all = t.marked && !c.late
			c.leave()
			return
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-c.cut:
		}
		t.mu.Lock()
	}
}

// output is stdout or stderr of a program.
type output struct {
	p      *Program
	stderr bool
}

// Write ends the program's goroutine when the program is dead.
func (o output) Write(text []byte) (int, error) {
	if len(text) == 0 {
		return 0, nil
	}
	if !o.p.c.tape.write(o.stderr, text, o.p.dead) {
		runtime.Goexit()
	}
	return len(text), nil
}

// input is the standard input of a program.
type input struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func newInput() *input {
	r, w := io.Pipe()
	return &input{r, w}
}

// feed copies until either side ends. A blocked reader may hold it up after the program's end.
func (i *input) feed(from io.Reader) {
	_, err := io.Copy(i.w, from)
	_ = i.w.CloseWithError(err) // never fails
}

// close ends the input.
func (i *input) close() error { return i.w.Close() }
