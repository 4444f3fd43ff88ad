package porter

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"net"
	"sync"
)

// transfer is an archive on its way into the volume, across connections.
type transfer struct {
	id      string
	to      *io.PipeWriter
	arrived int64
	sum     hash.Hash
	ended   chan struct{} // closed when it is unpacked, or cannot be
	err     error
	// turn is held by the connection in use.
	turn sync.Mutex
}

// begin returns the transfer with an ID. A new one takes the place of an unfinished one.
func (s *server) begin(id string) *transfer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.transfer != nil && s.transfer.id == id {
		return s.transfer
	}
	if s.transfer != nil {
		_ = s.transfer.to.CloseWithError(errors.New("another transfer has begun"))
	}
	from, to := io.Pipe()
	t := &transfer{id: id, to: to, sum: sha256.New(), ended: make(chan struct{})}
	s.transfer = t
	go func() {
		t.err = Unpack(s.config.Volume, from)
		_ = from.CloseWithError(t.err)
		close(t.ended)
	}()
	return t
}

// serveFill receives an archive from where the last connection ended.
func (s *server) serveFill(conn net.Conn, from *bufio.Reader, head Header) {
	t := s.begin(head.Transfer)
	t.turn.Lock()
	defer t.turn.Unlock()
	if writeJSON(conn, 'h', hello{In: t.arrived}) != nil {
		return
	}
	buffer := make([]byte, maxRecord)
	for {
		kind, payload, err := readRecord(from, buffer)
		switch {
		case err != nil:
			return
		case kind == 'i':
			_, _ = t.sum.Write(payload)
			t.arrived += int64(len(payload))
			_, _ = t.to.Write(payload) // an archive that cannot be unpacked is read to its end
		case kind == 'c':
			_ = t.to.Close()
			<-t.ended
			v := verdict{SHA256: hex.EncodeToString(t.sum.Sum(nil)), Bytes: t.arrived}
			if t.err != nil {
				v.Error = t.err.Error()
			}
			_ = writeJSON(conn, 'z', v)
			return
		}
	}
}

// serveFetch sends an archive, without the bytes that the controller has.
func (s *server) serveFetch(conn net.Conn, head Header) {
	to := &sender{conn: conn, skip: head.Out, sum: sha256.New()}
	err := Pack(s.config.Volume, head.Path, to)
	if to.failed {
		return
	}
	v := verdict{SHA256: hex.EncodeToString(to.sum.Sum(nil)), Bytes: to.total, Missing: errors.Is(err, fs.ErrNotExist)}
	if err != nil {
		v.Error = err.Error()
	}
	_ = writeJSON(conn, 'z', v)
}

// sender sends everything but the first bytes.
type sender struct {
	conn        net.Conn
	skip, total int64
	sum         hash.Hash
	failed      bool
}

func (t *sender) Write(p []byte) (int, error) {
	_, _ = t.sum.Write(p)
	t.total += int64(len(p))
	rest := p
	if skipped := min(t.skip, int64(len(p))); skipped > 0 {
		rest, t.skip = p[skipped:], t.skip-skipped
	}
	for len(rest) > 0 {
		n := min(len(rest), maxRecord)
		if err := writeRecord(t.conn, 'o', rest[:n]); err != nil {
			t.failed = true
			return 0, err
		}
		rest = rest[n:]
	}
	return len(p), nil
}
