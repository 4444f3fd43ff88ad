package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxComplaint bounds the kept part of stderr from before any program exists.
const maxComplaint = 4 << 10

// Receiver is the controller's side of one container's output. A demultiplexer writes the
// two streams to Stdout and Stderr; the receiver takes the frames out, and passes the
// program's output on unmodified. Its methods may be called concurrently, but each stream
// must be written by one goroutine at a time.
type Receiver struct {
	mu        sync.Mutex
	frames    []byte // the part of a frame on stdout that has arrived
	expect    expectation
	complaint []byte
	out, err  scanner
	ready     Ready
	before    Usage // of the waiting process
	report    Report
	failure   error
	// cutFrame says that the connection ended in the middle of a frame.
	cutFrame bool
	// Closed when the ready frame, the answers to WAIT and to the job, and the end of both
	// streams have been read, and when the connection has ended.
	isReady, isWaiting, isAccepted, isOver, closed chan struct{}
	nonce                                          Nonce
	// looked is closed when the next ready frame has been read; nil if none was asked for.
	looked chan struct{}
}

// expectation is the next part of stdout.
type expectation int

const (
	expectReady expectation = iota
	expectAnswer
	expectOutput
	expectReport
	expectNothing
)

// NewReceiver returns a receiver that expects a ready frame.
func NewReceiver() *Receiver {
	return &Receiver{isReady: make(chan struct{}), isWaiting: make(chan struct{}), isAccepted: make(chan struct{}), isOver: make(chan struct{}), closed: make(chan struct{})}
}

// Resume returns a receiver for a job that was started before, perhaps by another process. The
// streams may begin with the first frames, or anywhere in the output.
func Resume(nonce Nonce, stdout, stderr io.Writer) *Receiver {
	r := NewReceiver()
	r.Begin(nonce, stdout, stderr)
	close(r.isAccepted)
	r.expect = expectReady
	r.out.resumed = true
	return r
}

// Begin sets where the output of the job goes. It must be called before the job is sent.
func (r *Receiver) Begin(nonce Nonce, stdout, stderr io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nonce = nonce
	r.out.begin(nonce, stdout)
	r.err.begin(nonce, stderr)
}

// Stdout returns the writer for the container's stdout.
func (r *Receiver) Stdout() io.Writer { return writer(r.writeOut) }

// Stderr returns the writer for the container's stderr.
func (r *Receiver) Stderr() io.Writer { return writer(r.writeErr) }

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func (r *Receiver) writeErr(p []byte) {
	r.mu.Lock()
	if !r.err.begun {
		r.complaint = append(r.complaint, p[:min(len(p), maxComplaint-len(r.complaint))]...)
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	r.err.scan(p)
	r.finished()
}

func (r *Receiver) writeOut(p []byte) {
	for len(p) > 0 {
		r.mu.Lock()
		expect := r.expect
		r.mu.Unlock()
		switch expect {
		case expectOutput:
			rest, ended := r.out.scan(p)
			if !ended {
				return
			}
			r.mu.Lock()
			r.expect = expectReport
			r.mu.Unlock()
			p = rest
		case expectNothing:
			p = nil // ignore everything behind a report
		default:
			p = r.frame(p)
		}
	}
	r.finished()
}

// frame collects one frame, and returns the bytes behind it.
func (r *Receiver) frame(p []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	need := headerSize
	if len(r.frames) >= headerSize {
		_, n, _ := parseHeader(r.frames)
		need += n
	}
	n := min(need-len(r.frames), len(p))
	r.frames, p = append(r.frames, p[:n]...), p[n:]
	if r.out.resumed && r.expect < expectOutput {
		// A program can print the header of a frame that never ends, but a frame from init
		// never contains the end mark.
		if last := r.frames[max(0, len(r.frames)-n-nonceSize+1):]; bytes.Contains(last, r.nonce[:]) {
			return r.notFrames(p)
		}
	}
	if len(r.frames) < need {
		return p
	}
	t, size, err := parseHeader(r.frames)
	if err == nil && len(r.frames) < headerSize+size {
		return p // the payload is still incomplete
	}
	if err == nil {
		err = r.take(t, r.frames[headerSize:])
	}
	if err != nil && r.out.resumed && r.expect != expectReport {
		return r.notFrames(p)
	}
	r.frames = nil
	if err != nil {
		r.fail(err)
		r.expect = expectNothing
	}
	return p
}

// notFrames treats the collected bytes and those behind them as output: the log of a resumed
// job has lost its beginning. The lock is held.
func (r *Receiver) notFrames(p []byte) []byte {
	held := r.frames
	r.frames, r.expect = nil, expectOutput
	return append(held, p...)
}

// take handles a frame. The lock is held.
func (r *Receiver) take(t frameType, payload []byte) (err error) {
	switch {
	case t == typeReady && (r.expect == expectReady || r.expect == expectAnswer && (r.looked != nil || r.out.resumed)):
		err = r.takeReady(payload)
	case t == typeWaiting && r.expect == expectAnswer:
		r.before, err = parseWaiting(payload)
		select {
		case <-r.isWaiting:
		default:
			close(r.isWaiting)
		}
	case t == typeAccepted && r.expect == expectAnswer:
		err = r.checkAnswer(payload)
		if err == nil {
			r.expect = expectOutput
			if !r.out.resumed {
				close(r.isAccepted)
			}
		}
	case t == typeRefused && r.expect == expectAnswer:
		err = refusal(payload)
	case t == typeReport && r.expect == expectReport:
		if r.report, err = parseReport(payload); err == nil {
			r.expect = expectNothing
		}
	default:
		err = fmt.Errorf("%w: type %d in the wrong place", errFormat, t)
	}
	return err
}

// takeReady handles a ready frame. The lock is held.
func (r *Receiver) takeReady(payload []byte) error {
	ready, err := parseReady(payload)
	switch {
	case err != nil:
	case r.expect == expectReady:
		r.ready, r.expect = ready, expectAnswer
		close(r.isReady)
	case r.looked != nil:
		r.ready = ready
		close(r.looked)
		r.looked = nil
	default: // init was asked to look again, or somebody restarted the container before it had a job
	}
	return err
}

func (r *Receiver) checkAnswer(payload []byte) error {
	for tag, value := range fields(payload) {
		if tag == 1 && bytes.Equal(value, r.nonce[:shownNonce]) && r.out.begun {
			return nil
		}
	}
	return fmt.Errorf("%w: the answer is to another job", errFormat)
}

func refusal(payload []byte) error {
	text := "without a reason"
	for tag, value := range fields(payload) {
		if tag == 2 {
			text = fmt.Sprintf("%.200q", value)
		}
	}
	return fmt.Errorf("%w: %s", errRefused, text)
}

// finished closes isOver if both streams have ended.
func (r *Receiver) finished() {
	r.mu.Lock()
	defer r.mu.Unlock()
	out, err := r.marks()
	select {
	case <-r.isOver:
	default:
		if out && err {
			close(r.isOver)
		}
	}
}

// marks reports which streams have ended with their mark. The end of stdout includes the
// report. The lock is held.
func (r *Receiver) marks() (out, err bool) {
	return r.expect == expectNothing && r.report.Kind != 0, r.err.over.Load()
}

// fail records the first error, and wakes all waiting calls. The lock is held.
func (r *Receiver) fail(err error) {
	if r.failure == nil {
		r.failure = err
	}
	select {
	case <-r.closed:
	default:
		close(r.closed)
	}
}

// ErrCut means that the connection ended before the expected frame arrived.
var ErrCut = errors.New("the connection to the container ended")

// Close ends the receiver after the last write. It passes on bytes that were held back, and
// waiting calls return an error that wraps ErrCut and the reason.
func (r *Receiver) Close(reason error) {
	r.mu.Lock()
	held := r.frames
	r.frames, r.cutFrame = nil, len(held) > 0
	isOutput := r.out.resumed && r.expect < expectOutput
	r.mu.Unlock()
	if isOutput {
		r.out.scan(held)
	}
	r.out.flush()
	r.err.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	out, err := r.marks()
	cut := fmt.Errorf("%w (end of stdout seen: %t, of stderr: %t)", ErrCut, out, err)
	if reason != nil {
		cut = fmt.Errorf("%w: %w", cut, reason)
	}
	r.fail(cut)
}

// wait waits until arrived is closed. A frame that has arrived counts even if the connection
// has ended since.
func (r *Receiver) wait(ctx context.Context, arrived <-chan struct{}) error {
	select {
	case <-arrived:
		return nil
	default:
	}
	select {
	case <-arrived:
		return nil
	case <-r.closed:
		select {
		case <-arrived:
			return nil
		default:
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.failure
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Ready waits for the ready frame.
func (r *Receiver) Ready(ctx context.Context) (Ready, error) {
	err := r.wait(ctx, r.isReady)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready, err
}

// Waiting waits for the answer to [Wait]: the process is ready, or has failed. It returns what the
// container has used until then.
func (r *Receiver) Waiting(ctx context.Context) (Usage, error) {
	err := r.wait(ctx, r.isWaiting)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.before, err
}

// Look asks init, which has no job yet, once more what it sees, and waits for the answer. Only one
// call may be in progress. If another process has read the first frame of init, this is its first.
func (r *Receiver) Look(ctx context.Context, stdin io.Writer) (Ready, error) {
	looked := make(chan struct{})
	r.mu.Lock()
	if r.expect == expectReady {
		looked = r.isReady
	} else {
		r.looked = looked
	}
	r.mu.Unlock()
	go func() {
		// A failed write shows as the end of the connection.
		_, _ = stdin.Write(newFrame(typeLook, nil))
	}()
	err := r.wait(ctx, looked)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready, err
}

// Accepted waits until init has accepted the job. The error is errRefused if init refused it,
// and errFormat if something other than init has answered.
func (r *Receiver) Accepted(ctx context.Context) error { return r.wait(ctx, r.isAccepted) }

// End waits for both end marks and the report.
func (r *Receiver) End(ctx context.Context) (Report, error) {
	err := r.wait(ctx, r.isOver)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report, err
}

// Unanswered reports whether the streams ended before the answer to the job: init never had a
// job, and no program has run. It must be called after [Receiver.Close].
func (r *Receiver) Unanswered() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.expect == expectAnswer && !r.cutFrame
}

// Began reports whether anything but frames of a container without a job has arrived on stdout. A
// container that waited for its job, or was restarted before it had one, has several, and the last one
// can still be incomplete.
func (r *Receiver) Began() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.expect != expectAnswer || len(r.frames) == 0 {
		return r.expect > expectAnswer
	}
	if len(r.frames) < headerSize {
		return true
	}
	t, _, err := parseHeader(r.frames)
	return err != nil || t != typeReady && t != typeWaiting
}

// Over returns a channel that is closed once both end marks and the report were read.
func (r *Receiver) Over() <-chan struct{} { return r.isOver }

// Complaint returns the first 4 KiB of stderr from before the job.
func (r *Receiver) Complaint() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.complaint)
}
