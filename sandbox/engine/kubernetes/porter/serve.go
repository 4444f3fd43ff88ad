package porter

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Config describes a porter.
type Config struct {
	// Spool is a directory of the porter alone, Line one that the program's container mounts
	// read-only, and Volume the one with the files of the run.
	Spool, Line, Volume string
	// Window is how long init does not notice that no controller is connected.
	Window time.Duration
	// Limit is how many bytes of each stream are kept, about.
	Limit int64
	// Needs are directories that must exist before the program's container starts: the kubelet would
	// create them in volumes that are not the run's.
	Needs []string
}

// missing names a directory that does not exist; empty if none does.
func (c Config) missing() string {
	for _, dir := range c.Needs {
		if at, err := os.Stat(dir); err != nil || !at.IsDir() {
			return dir
		}
	}
	return ""
}

const (
	// lineSocket and porterSocket are the names of sockets, in Line and Spool.
	lineSocket   = "init.sock"
	porterSocket = "porter.sock"
)

// firstWindow is how long the first controller may take to come.
var firstWindow = time.Minute

// server is the porter.
type server struct {
	config Config
	mu     sync.Mutex
	news   *sync.Cond

	// joined is closed when init's pipes are here; stdin and control are two of them.
	joined         chan struct{}
	stdin, control *os.File
	out, err       *spool
	opened         chan struct{} // closed when the program's container may start

	// asked are the requests to end the program that controllers have sent, and orders those for init
	// that were not passed on yet.
	asked  []request
	orders []byte

	// in are the bytes for init that were not passed on yet; arrived and passed count all.
	in              []byte
	arrived, passed int64
	endIn           bool

	// attached are the connections of controllers; absent says since when there is none, and gone
	// that init knows. owner is the controller that init counts as its own.
	attached map[*attachment]bool
	owner    string
	absent   time.Time
	gone     bool

	transfer *transfer
	// busy counts the connections of transfers.
	busy int

	done     chan struct{} // closed when init cannot join any more
	doneOnce sync.Once
}

// request is one request of a controller.
type request struct {
	what   byte
	client string
}

// attachment is one connection of a controller to the streams.
type attachment struct {
	conn   net.Conn
	client string
	ended  bool
}

// Serve is the porter of a pod. It ends when terminate is closed while no controller is connected, or
// when no controller has come.
func Serve(ctx context.Context, config Config, terminate <-chan struct{}) error {
	s := &server{config: config, joined: make(chan struct{}), opened: make(chan struct{}), done: make(chan struct{}), attached: map[*attachment]bool{}, absent: time.Now()}
	s.news = sync.NewCond(&s.mu)
	for _, each := range []struct {
		to   **spool
		name string
	}{{&s.out, "stdout"}, {&s.err, "stderr"}} {
		dir := filepath.Join(config.Spool, each.name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		*each.to = &spool{news: s.news, dir: dir, limit: config.Limit}
	}
	line, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(config.Line, lineSocket), Net: "unix"})
	if err != nil {
		return err
	}
	defer func() { _ = line.Close() }()
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(config.Spool, porterSocket), Net: "unix"})
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	go s.join(line)
	go s.pass()
	go s.order()
	go func() {
		for {
			conn, err := socket.Accept()
			if err != nil {
				return // closed
			}
			go s.handle(conn)
		}
	}()
	return s.live(ctx, terminate)
}

// live waits for the end of the porter, and for controllers that go.
func (s *server) live(ctx context.Context, terminate <-chan struct{}) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.done:
			return errors.New("the program's container did not call as it should")
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		s.mu.Lock()
		absent := len(s.attached)+s.busy == 0
		window := s.config.Window
		if s.owner == "" {
			window = max(window, firstWindow)
		}
		late := absent && !s.gone && time.Since(s.absent) > window
		s.gone = s.gone || late
		s.mu.Unlock()
		select {
		case <-terminate:
			if absent {
				return errors.New("the pod was stopped, and no controller is connected")
			}
		default:
		}
		if !late {
			continue
		}
		select {
		case <-s.joined:
		default:
			return errors.New("no controller came for the pod")
		}
		if s.sayGone() {
			return errors.New("no controller came back, and init had no job")
		}
	}
}

// idleEnd is how long an init without a job may take to end once its controller has gone.
const idleEnd = 2 * time.Second

// sayGone lets init know that its controller has gone. It reports whether init ended because of that,
// which it does if it never had a job: one with a job waits for a controller even after its report.
func (s *server) sayGone() (idle bool) {
	s.mu.Lock()
	ended := s.out.closed && s.err.closed
	if !ended {
		s.request('G') // RequestGone of package wire
	}
	s.mu.Unlock()
	if ended {
		return false
	}
	for began := time.Now(); time.Since(began) < idleEnd && !ended; time.Sleep(20 * time.Millisecond) {
		s.mu.Lock()
		ended = s.out.closed && s.err.closed && len(s.attached) == 0
		s.mu.Unlock()
	}
	return ended
}

// join accepts the call of the program's container.
func (s *server) join(line *net.UnixListener) {
	stdin, out, err, control, failure := accept(line)
	if failure != nil {
		if !errors.Is(failure, net.ErrClosed) { // the porter ends
			fmt.Fprintln(os.Stderr, "porter:", failure)
		}
		s.doneOnce.Do(func() { close(s.done) })
		return
	}
	s.stdin, s.control = stdin, control
	close(s.joined)
	go s.out.fill(out)
	go s.err.fill(err)
}

// request makes the porter send a request to init. The lock is held.
func (s *server) request(what byte) {
	s.orders = append(s.orders, what)
	s.news.Broadcast()
}

// order passes the requests on, in their order.
func (s *server) order() {
	<-s.joined
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.orders) == 0 {
			s.news.Wait()
		}
		orders := s.orders
		s.orders = nil
		s.mu.Unlock()
		_, _ = s.control.Write(orders) // a pipe without a reader is that of an init that has ended
		s.mu.Lock()
	}
}

// pass passes the bytes for init on.
func (s *server) pass() {
	<-s.joined
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.in) == 0 {
			if s.endIn {
				_ = s.stdin.Close()
				return
			}
			s.news.Wait()
		}
		piece := s.in
		s.mu.Unlock()
		n, err := s.stdin.Write(piece[:min(len(piece), maxRecord)])
		s.mu.Lock()
		if err != nil {
			n = len(piece) // init has ended
		}
		s.in, s.passed = s.in[n:], s.passed+int64(n)
		s.news.Broadcast()
	}
}

func (s *server) handle(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	from := bufio.NewReaderSize(conn, maxRecord)
	head, err := readHeader(from)
	if err != nil {
		return
	}
	switch head.Channel {
	case channelInit:
		s.serveInit(conn, from, head)
	case channelFill, channelFetch:
		s.count(1)
		defer s.count(-1)
		if head.Channel == channelFetch {
			s.serveFetch(conn, head)
			return
		}
		s.serveFill(conn, from, head)
	case channelOpen:
		if dir := s.config.missing(); dir != "" {
			_ = writeJSON(conn, 'z', verdict{Error: dir, Missing: true})
			return
		}
		s.mu.Lock()
		select {
		case <-s.opened:
		default:
			close(s.opened)
		}
		s.mu.Unlock()
		_ = writeJSON(conn, 'z', verdict{})
	case channelReach:
		_ = writeJSON(conn, 'z', verdict{})
	case channelAwait:
		select {
		case <-s.opened:
			_ = writeJSON(conn, 'z', verdict{})
		case <-s.done:
		}
	}
}

// count counts the connections of transfers.
func (s *server) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.absent = s.busy+n, time.Now()
}

// serveInit serves the streams of init to one controller. A new connection of a controller replaces
// its old one.
func (s *server) serveInit(conn net.Conn, from *bufio.Reader, head Header) {
	a := &attachment{conn: conn, client: head.Client}
	s.mu.Lock()
	for old := range s.attached {
		if old.client == a.client {
			old.ended = true
			_ = old.conn.Close()
		}
	}
	s.attached[a] = true
	if s.isAnother() {
		s.request('G') // the one that started the program does not come back
	}
	s.out.taken, s.err.taken = max(s.out.taken, min(head.Out, s.out.end)), max(s.err.taken, min(head.Err, s.err.end))
	s.out.attached, s.err.attached = true, true
	greeting := hello{In: s.arrived, Requests: s.requestsOf(a.client)}
	s.news.Broadcast()
	s.mu.Unlock()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer func() { _ = conn.Close() }()
		if writeJSON(conn, 'h', greeting) == nil {
			s.send(conn, a, head)
		}
	}()
	s.receive(from, a)
	s.mu.Lock()
	a.ended = true
	if delete(s.attached, a); len(s.attached) == 0 {
		s.absent, s.gone = time.Now(), false
		s.out.attached, s.err.attached = false, false
	}
	if s.isAnother() {
		s.request('G')
	}
	s.news.Broadcast()
	s.mu.Unlock()
	_ = conn.Close()
	<-sent
}

// isAnother makes another controller the owner, if the owner is not connected and another one is. It
// reports whether there was an owner before: that one does not come back. The lock is held.
func (s *server) isAnother() bool {
	other := ""
	for a := range s.attached {
		if a.client == s.owner {
			return false
		}
		other = a.client
	}
	before := s.owner
	if other != "" {
		s.owner = other
	}
	return other != "" && before != ""
}

// requestsOf counts the requests of one controller. The lock is held.
func (s *server) requestsOf(client string) (n int) {
	for _, each := range s.asked {
		if each.client == client {
			n++
		}
	}
	return n
}

// receive handles what a controller sends until its connection ends, or another one replaces it: what
// was not counted in the hello of that one counts for nothing, because it comes again.
func (s *server) receive(from *bufio.Reader, a *attachment) {
	buffer := make([]byte, maxRecord)
	for {
		kind, payload, err := readRecord(from, buffer)
		if err != nil {
			return
		}
		s.mu.Lock()
		if a.ended {
			s.mu.Unlock()
			return
		}
		switch kind {
		case 'i':
			if len(s.in)+len(payload) > 2*window || s.endIn {
				s.mu.Unlock()
				return
			}
			s.in = append(s.in, payload...)
			s.arrived += int64(len(payload))
		case 'c':
			s.endIn = true
		case 'r':
			if len(payload) == 1 && len(s.asked) < maxRecord {
				s.asked = append(s.asked, request{payload[0], a.client})
				s.request(payload[0])
			}
		}
		s.news.Broadcast()
		s.mu.Unlock()
	}
}

// send sends what there is until the connection ends, or everything was sent.
func (s *server) send(conn net.Conn, a *attachment, head Header) {
	buffer := make([]byte, maxRecord)
	out, err := head.Out, head.Err
	acknowledged, asked := int64(-1), 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if a.ended {
			return
		}
		kind, payload, failed := s.next(a.client, &out, &err, &acknowledged, &asked, buffer)
		if failed {
			return
		}
		if kind == 0 {
			s.news.Wait()
			continue
		}
		s.mu.Unlock()
		failure := writeRecord(conn, kind, payload)
		s.mu.Lock()
		if failure != nil || kind == 'x' {
			return
		}
		s.out.taken, s.err.taken = max(s.out.taken, out), max(s.err.taken, err)
		s.news.Broadcast()
	}
}

// next is the next record for a controller; kind 0 means that there is none yet. The lock is held.
func (s *server) next(client string, out, err, acknowledged *int64, asked *int, buffer []byte) (kind byte, payload []byte, failed bool) {
	if *asked < len(s.asked) { // before the report, which may be due to it
		*asked++
		each := s.asked[*asked-1]
		own := byte(0)
		if each.client == client {
			own = 1
		}
		return 'q', []byte{each.what, own}, false
	}
	for _, each := range []struct {
		from *spool
		at   *int64
		kind byte
	}{{s.out, out, 'o'}, {s.err, err, 'e'}} {
		if *each.at < each.from.start {
			*each.at = each.from.start
			return 'g', fmt.Appendf(nil, `{"kind":"%c","start":%d}`, each.kind, each.from.start), false
		}
		if *each.at < each.from.end {
			n, readErr := each.from.read(*each.at, buffer)
			*each.at += int64(n)
			return each.kind, buffer[:n], readErr != nil
		}
	}
	if s.passed > *acknowledged {
		*acknowledged = s.passed
		return 'a', binary.LittleEndian.AppendUint64(nil, uint64(s.passed)), false
	}
	if s.out.closed && s.err.closed {
		return 'x', nil, false
	}
	return 0, nil, false
}

// Relay connects stdin and stdout of a process beside the porter to the porter.
func Relay(spool string, stdin io.Reader, stdout io.Writer) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(spool, porterSocket), Net: "unix"})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	go func() {
		_, _ = io.Copy(conn, stdin)
		// A controller that has gone sends nothing more, and does not listen.
		_ = conn.Close()
	}()
	_, err = io.Copy(stdout, conn)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Await waits until the program's container may start.
func Await(spool string) error {
	at := &net.UnixAddr{Name: filepath.Join(spool, porterSocket), Net: "unix"}
	conn, err := net.DialUnix("unix", nil, at)
	for try := 0; err != nil && try < 400; try++ { // the porter has just started
		time.Sleep(5 * time.Millisecond)
		conn, err = net.DialUnix("unix", nil, at)
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := writeHeader(conn, Header{Channel: channelAwait}); err != nil {
		return err
	}
	kind, _, err := readRecord(bufio.NewReader(conn), make([]byte, maxRecord))
	if err == nil && kind != 'z' {
		err = errRecord
	}
	return err
}
