package porter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Dial makes one connection to the porter, as a process that runs [Relay] beside it. An error for
// which [ErrGone] is in the chain is final; after any other one the caller tries again.
type Dial func(ctx context.Context) (io.ReadWriteCloser, error)

var (
	// ErrGone means that the porter does not exist any more, and never will.
	ErrGone = errors.New("the pod is gone")
	// ErrNotYet means that the porter has not started, and may start later.
	ErrNotYet = errors.New("the pod has not started")
	// ErrLost means that the porter could not be reached for as long as the budget of a session.
	ErrLost = errors.New("the connection to the pod was lost")
	errCut  = errors.New("the session was cut")
)

const (
	firstPause = 20 * time.Millisecond
	mostPause  = 2 * time.Second
	// eager is how long a pod that has not started is asked for without longer pauses.
	eager = 2 * time.Second
)

// pacing is the time between attempts, and the time since there was hope.
type pacing struct {
	began, since time.Time
	pause        time.Duration
}

func newPacing() *pacing { return &pacing{time.Now(), time.Now(), firstPause} }

func (p *pacing) progress() { p.since, p.pause = time.Now(), firstPause }

// wait waits before the next attempt, after an error. It fails if the budget is spent.
func (p *pacing) wait(ctx context.Context, budget time.Duration, err error) error {
	notYet := errors.Is(err, ErrNotYet)
	if notYet {
		p.since = time.Now()
	}
	switch {
	case errors.Is(err, ErrGone):
		return err
	case time.Since(p.since) > budget:
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(p.pause):
	}
	if !notYet || time.Since(p.began) > eager {
		p.pause = min(2*p.pause, mostPause)
	}
	return nil
}

// Session is a conversation with init across any number of connections. Its methods may be called
// concurrently.
type Session struct {
	dial   Dial
	client string
	budget time.Duration
	// out and err are the streams: a writer, and how many bytes it has.
	out, err stream

	mu   sync.Mutex
	news *sync.Cond
	// kept are the bytes for init that have not arrived yet, from offset base; passed is how
	// many were passed on to init.
	kept         []byte
	base, passed int64
	endIn        bool
	// requests are those of this session; the first acknowledged ones have arrived.
	requests     []*order
	acknowledged int
	// conn is the connection in use; nil between two.
	conn io.Closer
	// connected says that a porter has answered once; lost counts connections that broke.
	connected bool
	lost      int
	gaps      int
	stopped   bool
	// asked are the requests that any controller has sent.
	asked []byte
	over  chan struct{} // closed when the loop has ended, for why
	why   error
}

// order is a request of a session. One that was withdrawn is not sent again.
type order struct {
	what      byte
	withdrawn bool
}

type stream struct {
	to   io.Writer
	have int64
}

// Open begins a session. The streams of init are written to out and err, each from the same
// goroutine. The session gives up when the porter could not be reached for as long as budget.
func Open(ctx context.Context, dial Dial, client string, budget time.Duration, out, err io.Writer) *Session {
	s := &Session{dial: dial, client: client, budget: budget, out: stream{to: out}, err: stream{to: err}}
	s.news = sync.NewCond(&s.mu)
	s.Resume(ctx)
	return s
}

// Resume continues a session that has ended: with [ErrLost], or because it was cut.
func (s *Session) Resume(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.over, s.stopped, s.why = over, false, nil
	go func() {
		err := s.loop(ctx)
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.why = err
		close(over)
		s.news.Broadcast()
	}()
	context.AfterFunc(ctx, s.wake)
}

// wake makes those who wait look at their contexts. With the lock none can miss it.
func (s *Session) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.news.Broadcast()
}

// Over is closed when the session has ended, until it is resumed; [Session.Why] says why.
func (s *Session) Over() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// Why says why the session has ended: nil because init has ended and every byte of its streams was
// written.
func (s *Session) Why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// Broken reports whether a connection ever broke, and whether the streams have a gap.
func (s *Session) Broken() (ever, gap bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost > 0, s.gaps > 0
}

// Asked returns the requests that controllers have sent to init, this one included.
func (s *Session) Asked() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.asked)
}

// Cut ends the session on this side. Nothing is written to the streams after it has returned. The
// writer of a stream that blocks also blocks Cut.
func (s *Session) Cut() {
	s.mu.Lock()
	s.stopped = true
	if s.conn != nil {
		_ = s.conn.Close()
	}
	over := s.over
	s.mu.Unlock()
	s.news.Broadcast()
	<-over
}

// Write sends bytes to init's stdin. It blocks while too many are on their way.
func (s *Session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	written := 0
	for written < len(p) {
		room := window - int(s.base+int64(len(s.kept))-s.passed)
		switch {
		case s.stopped || s.endIn:
			return written, io.ErrClosedPipe
		case room <= 0:
			s.news.Wait()
		default:
			n := min(room, len(p)-written)
			s.kept = append(s.kept, p[written:written+n]...)
			written += n
			s.news.Broadcast()
		}
	}
	return written, nil
}

// CloseIn ends init's stdin, behind everything that was written.
func (s *Session) CloseIn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endIn = true
	s.news.Broadcast()
}

// Request sends a request to init, past everything that was written, and returns when the porter has
// it: once, over any number of connections. It returns nil as well if init has ended. Any other end of
// the session, or of ctx, is an error, after which the request may have arrived, but is not sent again.
func (s *Session) Request(ctx context.Context, what byte) error {
	defer context.AfterFunc(ctx, s.wake)()
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := &order{what: what}
	s.requests = append(s.requests, mine)
	s.news.Broadcast()
	for !slices.Contains(s.requests[:s.acknowledged], mine) {
		select {
		case <-s.over:
			mine.withdrawn = true
			if s.why == nil {
				return nil
			}
			return fmt.Errorf("%w: %w", ErrLost, s.why)
		case <-ctx.Done():
			mine.withdrawn = true
			return fmt.Errorf("%w: %w", ErrLost, context.Cause(ctx))
		default:
			s.news.Wait()
		}
	}
	return nil
}

func (s *Session) isStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// loop connects again and again.
func (s *Session) loop(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // a call to dial ends when the session is cut
		s.mu.Lock()
		defer s.mu.Unlock()
		for !s.stopped && ctx.Err() == nil {
			s.news.Wait()
		}
		cancel()
	}()
	defer s.news.Broadcast()
	pace := newPacing()
	for {
		conn, err := s.dial(ctx)
		if err == nil {
			var greeted bool
			greeted, err = s.talk(conn)
			if err == nil {
				return nil
			}
			if greeted {
				pace.progress()
				s.mu.Lock()
				s.lost++
				s.mu.Unlock()
			}
		}
		if s.isStopped() {
			return errCut
		}
		if err := pace.wait(ctx, s.budget, err); err != nil {
			if s.isStopped() {
				return errCut
			}
			return err
		}
	}
}

// talk uses one connection until it breaks, or until init has ended. greeted says that a porter
// answered.
func (s *Session) talk(conn io.ReadWriteCloser) (greeted bool, err error) {
	defer conn.Close()
	s.mu.Lock()
	s.conn = conn
	stopped := s.stopped
	head := Header{Channel: channelInit, Client: s.client, Out: s.out.have, Err: s.err.have}
	s.mu.Unlock()
	if stopped {
		return false, errCut
	}
	if err := writeHeader(conn, head); err != nil {
		return false, err
	}
	from, buffer := bufio.NewReaderSize(conn, maxRecord), make([]byte, maxRecord)
	kind, payload, err := readRecord(from, buffer)
	var greeting hello
	if err == nil && kind != 'h' {
		err = errRecord
	}
	if err == nil {
		err = json.Unmarshal(payload, &greeting)
	}
	if err == nil {
		err = s.arrived(greeting)
	}
	if err != nil {
		return false, err
	}
	sending := make(chan struct{})
	ended := false
	go func() {
		defer close(sending)
		s.send(conn, greeting, &ended)
	}()
	err = s.receive(from, buffer)
	s.mu.Lock()
	ended, s.conn = true, nil
	s.mu.Unlock()
	_ = conn.Close()
	s.news.Broadcast()
	<-sending
	return true, err
}

// arrived forgets the bytes that the porter has, and the requests that do not arrive any more.
func (s *Session) arrived(greeting hello) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := greeting.In
	if !s.connected { // nothing was sent before the first hello: these are of an earlier controller
		s.connected, s.base, s.passed = true, in, in
	}
	if in < s.base || in > s.base+int64(len(s.kept)) {
		return fmt.Errorf("%w: it has %d bytes of those from %d to %d", errRecord, in, s.base, s.base+int64(len(s.kept)))
	}
	if greeting.Requests < s.acknowledged || greeting.Requests > len(s.requests) {
		return fmt.Errorf("%w: it has %d of %d requests", errRecord, greeting.Requests, len(s.requests))
	}
	s.kept = s.kept[in-s.base:]
	s.base, s.acknowledged = in, greeting.Requests
	s.news.Broadcast()
	return nil
}

// send sends what there is until the connection has ended.
func (s *Session) send(conn io.Writer, greeting hello, ended *bool) {
	closed, sent, asked := false, greeting.In, greeting.Requests
	s.mu.Lock()
	defer s.mu.Unlock()
	for !*ended {
		pending := s.kept[sent-s.base:]
		var kind byte
		var payload []byte
		switch {
		case asked < len(s.requests) && s.requests[asked].withdrawn:
			s.requests = slices.Delete(s.requests, asked, asked+1)
			continue
		case asked < len(s.requests):
			kind, payload = 'r', []byte{s.requests[asked].what}
		case len(pending) > 0:
			kind, payload = 'i', append([]byte(nil), pending[:min(len(pending), maxRecord)]...)
		case s.endIn && !closed:
			kind = 'c'
		default:
			s.news.Wait()
			continue
		}
		s.mu.Unlock()
		err := writeRecord(conn, kind, payload)
		s.mu.Lock()
		if err != nil {
			return // the reader notices it
		}
		switch kind {
		case 'r':
			asked++
		case 'i':
			sent += int64(len(payload))
		case 'c':
			closed = true
		}
	}
}

// receive handles the records of the porter. Nil means that init has ended.
func (s *Session) receive(from *bufio.Reader, buffer []byte) error {
	for asked, own := 0, 0; ; {
		kind, payload, err := readRecord(from, buffer)
		if err != nil {
			return err
		}
		switch kind {
		case 'o':
			s.out.write(payload)
		case 'e':
			s.err.write(payload)
		case 'a':
			if len(payload) != 8 {
				return errRecord
			}
			passed := int64(binary.LittleEndian.Uint64(payload))
			s.mu.Lock()
			if s.passed = max(s.passed, passed); passed > s.base {
				// Another connection does not need it. What lies behind is of another controller.
				n := min(passed-s.base, int64(len(s.kept)))
				s.kept, s.base = s.kept[n:], s.base+n
			}
			s.mu.Unlock()
			s.news.Broadcast()
		case 'g':
			var missing gap
			if err := json.Unmarshal(payload, &missing); err != nil {
				return err
			}
			at := &s.out
			if missing.Kind == "e" {
				at = &s.err
			}
			at.have = missing.Start
			s.mu.Lock()
			s.gaps++
			s.mu.Unlock()
		case 'q':
			if len(payload) != 2 {
				return errRecord
			}
			s.mu.Lock()
			asked, own = asked+1, own+int(payload[1])
			if asked > len(s.asked) { // each connection repeats them
				s.asked = append(s.asked, payload[0])
			}
			s.acknowledged = max(s.acknowledged, min(own, len(s.requests)))
			s.mu.Unlock()
			s.news.Broadcast()
		case 'x':
			return nil
		default:
			return fmt.Errorf("%w: kind %q", errRecord, kind)
		}
	}
}

// write passes bytes on. Only the goroutine of the connection calls it.
func (s *stream) write(p []byte) {
	_, _ = s.to.Write(p) // it accepts everything
	s.have += int64(len(p))
}
