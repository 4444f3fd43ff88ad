package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/sandbox"
)

// maxPending bounds the calls that wait for their turn.
const maxPending = 1000

var (
	errGone    = errors.New("the client has gone")
	errClosing = errors.New("the server ends")
)

// calls are the calls of tools that go on. A call ends when the client cancels it, when its
// connection or its session ends, and when the server ends. Methods may be called concurrently.
type calls struct {
	ctx   context.Context //nolint:containedctx // that of the server: a call ends with it
	slots func(ctx context.Context) (release func(), err error)
	wait  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	pending int
	active  map[string]map[*context.CancelCauseFunc]bool // by session
	ending  map[string]bool                              // sessions that are being closed
	posts   map[string]context.Context                   // HTTP requests by their number
	lastID  uint64
}

func newCalls(ctx context.Context, parallel int) *calls {
	return &calls{
		ctx: ctx, slots: sandbox.Slots(parallel), active: map[string]map[*context.CancelCauseFunc]bool{},
		ending: map[string]bool{}, posts: map[string]context.Context{},
	}
}

// postHeader is a header that only this server sets: the number of the HTTP request of a call.
const postHeader = "Evalbox-Post"

// begin begins a call. The context that it returns ends with everything that ends the call.
func (c *calls) begin(ctx context.Context, session string, header http.Header) (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.ending[session] {
		cancel(errClosing)
		return nil, nil, errClosing
	}
	stops := []func() bool{context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })}
	if post, ok := c.posts[header.Get(postHeader)]; ok {
		stops = append(stops, context.AfterFunc(post, func() { cancel(errGone) }))
	}
	if c.active[session] == nil {
		c.active[session] = map[*context.CancelCauseFunc]bool{}
	}
	c.active[session][&cancel] = true
	c.wait.Add(1)
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.active[session], &cancel); len(c.active[session]) == 0 {
			delete(c.active, session)
		}
		c.wait.Done()
	}, nil
}

// turn waits until fewer programs run than may run at once. Calls get their turns in the order in
// which they asked.
func (c *calls) turn(ctx context.Context) (release func(), err error) {
	c.mu.Lock()
	full := c.pending >= maxPending
	if !full {
		c.pending++
	}
	c.mu.Unlock()
	if full {
		return nil, refusef("wait for the end of other calls", "%d calls wait already, which is the most", maxPending)
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pending--
	}()
	return c.slots(ctx)
}

// post notes an HTTP request until done is called, and returns its number.
func (c *calls) post(ctx context.Context) (number string, done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	number = strconv.FormatUint(c.lastID, 10)
	c.posts[number] = ctx //nolint:fatcontext // that of a request
	return number, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.posts, number)
	}
}

// endSession ends the calls of a session, while do closes it.
func (c *calls) endSession(session string, do func()) {
	c.mu.Lock()
	c.ending[session] = true
	for cancel := range c.active[session] {
		(*cancel)(errGone)
	}
	c.mu.Unlock()
	do()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ending, session)
}

// close refuses further calls, and waits for the others, whose context has ended.
func (c *calls) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wait.Wait()
}

// progress sends what a call does to a client that asked for it. A nil progress sends nothing. No
// method waits for the client, except end, and that not for long.
type progress struct {
	messages chan string
	done     chan struct{}
}

// progressPatience is how long the last message may take.
const progressPatience = time.Second

func newProgress(ctx context.Context, req *sdk.CallToolRequest) *progress {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	p := &progress{make(chan string, 16), make(chan struct{})}
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(p.done)
		n := 0.0
		for message := range p.messages {
			n++
			_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Message: message, Progress: n}) // a client that has gone misses nothing
		}
	}()
	return p
}

// say sends a message, unless many are unsent.
func (p *progress) say(format string, args ...any) {
	if p == nil {
		return
	}
	select {
	case p.messages <- fmt.Sprintf(format, args...):
	default:
	}
}

// end sends the rest. No message follows.
func (p *progress) end() {
	if p == nil {
		return
	}
	close(p.messages)
	select {
	case <-p.done:
	case <-time.After(progressPatience):
	}
}
