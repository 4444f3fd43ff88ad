//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A moment is a point in the life of one request to the engine.
type moment int

const (
	// beforeRequest is before the engine sees it, afterAnswer after the engine has carried
	// it out and before the client knows.
	beforeRequest moment = iota
	afterAnswer
	// firstInput is when the client has sent its first bytes on an attached connection,
	// before the engine sees them: the job. output is when the engine sends bytes there.
	firstInput
	output
)

// An apiCall matches requests to the engine, by method and path without its version.
type apiCall struct{ method, path string }

func (c apiCall) matches(r *http.Request) bool {
	return r.Method == c.method && regexp.MustCompile(`^(/v[0-9.]+)?`+c.path+`$`).MatchString(r.URL.Path)
}

// A cut is a way to fail a request.
type cut int

const (
	notCut cut = iota
	// refused closes the connection before the engine sees the request.
	refused
	// swallowed carries the request out and closes the connection without an answer.
	swallowed
	// halved closes the connection in the middle of the answer.
	halved
	// delayed holds the answer back for hangTime, then delivers it.
	delayed
	// hanging holds the answer back until the client gives up.
	hanging
	// emptied answers {}, and failed answers 500; the engine carried the request out.
	emptied
	failed
)

const (
	// hangTime is how long a delayed answer takes.
	hangTime = 3 * time.Second
	// hangLimit bounds how long a client may take to give up.
	hangLimit = 80 * time.Second
)

// A gate stops the first request that matches, at a moment, until it is opened.
type gate struct {
	call apiCall
	at   moment
	// how is what happens to the request when the gate opens.
	how     cut
	armed   atomic.Bool
	once    sync.Once
	reached chan struct{}
	opened  chan struct{}
	open    func()
}

// newGate returns an open gate: it stops nothing before it is armed.
func newGate(call apiCall, at moment) *gate {
	g := &gate{call: call, at: at, reached: make(chan struct{}), opened: make(chan struct{})}
	g.open = sync.OnceFunc(func() { close(g.opened) })
	return g
}

// pass waits at the gate if this is its first request and moment, and reports how the
// request is to be cut.
func (g *gate) pass(r *http.Request, at moment) cut {
	if !g.expects(r, at) {
		return notCut
	}
	how := notCut
	g.once.Do(func() {
		close(g.reached)
		<-g.opened
		how = g.how
	})
	return how
}

// expects reports whether a request will be stopped at this gate, at a moment.
func (g *gate) expects(r *http.Request, at moment) bool {
	return g != nil && g.at == at && g.armed.Load() && g.call.matches(r)
}

// apiProxy is between a controller and its engine. It passes every request on, but for
// what its gate and its clock say.
type apiProxy struct {
	listener net.Listener
	engine   string
	gate     *gate

	mu sync.Mutex
	// step is added to every time in the engine's answers.
	step time.Duration
	// calls lists the requests, for a reader of a failure.
	calls []string
	conns map[net.Conn]struct{}
	// streams are the attached connections.
	streams map[net.Conn]struct{}
	// away says that no connection comes through.
	away bool
	// job is when the first job went to the engine: its program starts later.
	job  time.Time
	work sync.WaitGroup
}

// newProxy listens on a socket and passes requests on to another one.
func newProxy(socket, engine string, g *gate) (*apiProxy, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	p := &apiProxy{listener: listener, engine: engine, gate: g, conns: map[net.Conn]struct{}{}, streams: map[net.Conn]struct{}{}}
	p.work.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if p.keep(conn) {
				p.work.Go(func() { p.serve(conn) })
			}
		}
	})
	return p, nil
}

// keep remembers a connection, so that close can end it.
func (p *apiProxy) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil || p.away {
		_ = conn.Close()
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *apiProxy) drop(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	delete(p.streams, conn)
}

// cutStreams ends every attached connection.
func (p *apiProxy) cutStreams() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.streams {
		_ = conn.Close()
	}
}

// cut ends every connection, and lets none through until it is called with false.
func (p *apiProxy) cut(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
	for conn := range p.conns {
		if away {
			_ = conn.Close()
		}
	}
}

// jobSent is when the first job went to the engine; zero before.
func (p *apiProxy) jobSent() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.job
}

// noteJob remembers when the first job went to the engine.
func (p *apiProxy) noteJob() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.job.IsZero() {
		p.job = time.Now()
	}
}

// close ends every connection and waits until nothing of the proxy is left.
func (p *apiProxy) close() {
	if p.gate != nil {
		p.gate.open()
	}
	_ = p.listener.Close()
	p.mu.Lock()
	conns := maps.Clone(p.conns)
	p.conns = nil
	p.mu.Unlock()
	for conn := range conns {
		_ = conn.Close()
	}
	p.work.Wait()
}

// stepClock moves the clock that the answers show.
func (p *apiProxy) stepClock(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = by
}

func (p *apiProxy) clock() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.step
}

// log returns the requests so far.
func (p *apiProxy) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.calls, "\n")
}

// serve passes the request of a connection on. Every answer ends its connection, so that a
// client that gives up differs from one that waits.
func (p *apiProxy) serve(conn net.Conn) {
	defer p.drop(conn)
	from := bufio.NewReader(conn)
	r, err := http.ReadRequest(from)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.calls = append(p.calls, r.Method+" "+r.URL.Path)
	p.mu.Unlock()
	how := p.gate.pass(r, beforeRequest)
	if how == refused {
		return
	}
	upstream, err := net.Dial("unix", p.engine)
	if err != nil || !p.keep(upstream) {
		return
	}
	defer p.drop(upstream)
	r.URL.RawQuery = shiftQuery(r.URL.RawQuery, p.clock())
	if err := r.Write(upstream); err != nil {
		return
	}
	if r.Header.Get("Upgrade") != "" {
		p.hijack(conn, from, upstream, r, how)
		return
	}
	gone := make(chan struct{})
	p.work.Go(func() {
		// Nothing more comes from a client that waits.
		_, _ = from.Peek(1)
		close(gone)
		if !p.gate.expects(r, afterAnswer) {
			_ = upstream.Close()
		}
	})
	answer, err := http.ReadResponse(bufio.NewReader(upstream), r)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	answer.Close = true
	if how = max(how, p.gate.pass(r, afterAnswer)); how == hanging {
		await(gone)
		return
	}
	p.deliver(conn, answer, how)
}

// await waits for the end of a client, which gives up in time.
func await(gone <-chan struct{}) {
	select {
	case <-gone:
	case <-time.After(hangLimit):
	}
}

// deliver writes an answer, or what a cut leaves of it.
func (p *apiProxy) deliver(conn net.Conn, answer *http.Response, how cut) {
	switch how {
	case notCut:
	case refused, swallowed, hanging:
		return
	case halved:
		var text bytes.Buffer
		_ = answer.Write(&text)
		_, _ = conn.Write(text.Bytes()[:text.Len()/2])
		return
	case delayed:
		time.Sleep(hangTime)
	case emptied:
		setBody(answer, http.StatusOK, "{}")
	case failed:
		setBody(answer, http.StatusInternalServerError, "something went wrong")
	}
	if step := p.clock(); step != 0 && answer.Header.Get("Content-Type") == "application/json" {
		shiftBody(answer, step)
	}
	_ = answer.Write(conn) // the client may be gone
}

// hijack passes on an attached connection, in both directions.
func (p *apiProxy) hijack(conn net.Conn, from *bufio.Reader, upstream net.Conn, r *http.Request, how cut) {
	p.mu.Lock()
	if p.streams != nil {
		p.streams[conn] = struct{}{}
	}
	p.mu.Unlock()
	back := bufio.NewReader(upstream)
	if how != notCut {
		// The answer to an attach is its header; the streams come after it.
		if _, err := back.Peek(1); err != nil {
			return
		}
		switch how {
		case delayed:
			time.Sleep(hangTime)
		case halved:
			_, _ = io.WriteString(conn, "HTTP/1.1 101 UPGR")
			return
		case emptied:
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
			return
		case failed:
			_, _ = io.WriteString(conn, "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")
			return
		case hanging:
			gone := make(chan struct{})
			go func() {
				_, _ = from.Peek(1)
				close(gone)
			}()
			await(gone)
			return
		case notCut, refused, swallowed:
			return
		}
	}
	p.work.Go(func() {
		p.copy(upstream, from, r, firstInput)
		if half, ok := upstream.(*net.UnixConn); ok {
			_ = half.CloseWrite()
		}
	})
	p.copy(conn, back, r, output)
}

// copy passes bytes on. The gate may stop them, or cut the connection.
func (p *apiProxy) copy(to io.Writer, from io.Reader, r *http.Request, at moment) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			piece := buffer[:n]
			switch p.gate.pass(r, at) {
			case notCut, emptied, failed:
			case refused, swallowed:
				return
			case halved:
				_, _ = to.Write(piece[:n/2])
				return
			case delayed:
				time.Sleep(hangTime)
			case hanging:
				time.Sleep(hangLimit)
				return
			}
			if at == firstInput {
				p.noteJob()
			}
			if _, err := to.Write(piece); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func setBody(answer *http.Response, status int, text string) {
	answer.StatusCode, answer.Status = status, strconv.Itoa(status)+" "+http.StatusText(status)
	answer.Body, answer.ContentLength, answer.TransferEncoding = io.NopCloser(strings.NewReader(text)), int64(len(text)), nil
	answer.Header.Set("Content-Type", "application/json")
}

// Times in Docker's answers: of containers as text, of events as numbers.
var (
	timeText  = regexp.MustCompile(`"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]{5})"`)
	timeSecs  = regexp.MustCompile(`"time":[0-9]+`)
	timeNanos = regexp.MustCompile(`"timeNano":[0-9]+`)
)

// shiftBody moves every time of an answer, piece by piece, because events do not end.
func shiftBody(answer *http.Response, by time.Duration) {
	body := answer.Body
	read, write := io.Pipe()
	go func() {
		defer body.Close()
		lines := bufio.NewReader(body)
		for {
			line, err := lines.ReadBytes('\n')
			if _, failed := write.Write(shiftTimes(line, by)); failed != nil {
				return
			}
			if err != nil {
				_ = write.CloseWithError(err)
				return
			}
		}
	}()
	answer.Body, answer.ContentLength, answer.TransferEncoding = read, -1, []string{"chunked"}
	answer.Header.Del("Content-Length")
}

func shiftTimes(text []byte, by time.Duration) []byte {
	text = timeText.ReplaceAllFunc(text, func(quoted []byte) []byte {
		t, err := time.Parse(time.RFC3339Nano, string(quoted[1:len(quoted)-1]))
		if err != nil {
			return quoted
		}
		return []byte(`"` + t.Add(by).Format(time.RFC3339Nano) + `"`)
	})
	shift := func(pattern *regexp.Regexp, by int64) {
		text = pattern.ReplaceAllFunc(text, func(member []byte) []byte {
			name, digits, _ := bytes.Cut(member, []byte(":"))
			n, err := strconv.ParseInt(string(digits), 10, 64)
			if err != nil {
				return member
			}
			return fmt.Appendf(nil, "%s:%d", name, n+by)
		})
	}
	shift(timeSecs, int64(by.Seconds()))
	shift(timeNanos, by.Nanoseconds())
	return text
}

// shiftQuery moves the bounds of a question about the past back to the engine's own clock.
func shiftQuery(query string, by time.Duration) string {
	values, err := url.ParseQuery(query)
	if err != nil || by == 0 {
		return query
	}
	for _, name := range []string{"since", "until"} {
		secs, rest, _ := strings.Cut(values.Get(name), ".")
		if n, err := strconv.ParseInt(secs, 10, 64); err == nil && n != 0 {
			text := strconv.FormatInt(n-int64(by.Seconds()), 10)
			if rest != "" {
				text += "." + rest
			}
			values.Set(name, text)
		}
	}
	return values.Encode()
}
