package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"

	"github.com/evalbox/evalbox/internal/said"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// attach connects to the streams of a container.
func (e *adapter) attach(ctx context.Context, id string) (*conversation, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	hijacked, err := e.attachUnder(ctx, id, container.AttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, fmt.Errorf("attaching to container %.12s: %w", id, engineError(ctx, err))
	}
	return &conversation{hijacked: hijacked, close: sync.OnceValue(hijacked.Conn.Close)}, nil
}

// attachUnder returns when its context ends. The client's own call does not: it writes to
// and reads from the hijacked connection directly.
func (e *adapter) attachUnder(ctx context.Context, id string, options container.AttachOptions) (types.HijackedResponse, error) {
	var hijacked types.HijackedResponse
	var err error
	attached := make(chan struct{})
	go func() {
		hijacked, err = e.api.ContainerAttach(ctx, id, options)
		close(attached)
	}()
	select {
	case <-attached:
		return hijacked, err
	case <-ctx.Done():
	}
	go func() {
		// Too late: nobody waits for the connection any more.
		if <-attached; err == nil {
			hijacked.Close()
		}
	}()
	return types.HijackedResponse{}, ctx.Err()
}

// conversation holds the attached streams of one container.
type conversation struct {
	hijacked types.HijackedResponse
	close    func() error
}

var _ engine.Conversation = (*conversation)(nil)

// file gives the connection up: reading it ends, and the file is it. It fails for a connection that
// is more than a socket.
func (c *conversation) file() (*os.File, error) {
	socket, ok := c.hijacked.Conn.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, errors.New("its connection is not a socket of this machine")
	}
	if err := c.hijacked.Conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return nil, err
	}
	return socket.File()
}

// Copy implements [engine.Conversation].
func (c *conversation) Copy(stdout, stderr io.Writer) error {
	if err := demultiplex(c.hijacked.Reader, stdout, stderr); err != nil {
		return fmt.Errorf("reading the container's output: %w", err)
	}
	return nil
}

// Stdin implements [engine.Conversation].
func (c *conversation) Stdin() io.WriteCloser { return conversationStdin{c.hijacked} }

// Close implements [engine.Conversation].
func (c *conversation) Close() error { return c.close() }

type conversationStdin struct{ hijacked types.HijackedResponse }

func (s conversationStdin) Write(p []byte) (int, error) { return s.hijacked.Conn.Write(p) }
func (s conversationStdin) Close() error                { return s.hijacked.CloseWrite() }

const (
	// streamBuffer is the size of the buffer per container.
	streamBuffer = 64 << 10
	// frameHeader is the size of a header: the stream's number, three zeros, and the
	// length, big-endian.
	frameHeader                              = 8
	frameStdout, frameStderr, frameComplaint = 1, 2, 3
	// complaintLimit bounds what is kept of a message of the engine itself in a stream.
	complaintLimit = 64 << 10
)

// errFrame means that the peer does not send Docker's format.
var errFrame = errors.New("the stream is not in Docker's format")

// demultiplex splits an attached stream until it ends. Frames are passed on in pieces, so
// that a claimed length, up to 4 GiB, costs no memory.
func demultiplex(from io.Reader, stdout, stderr io.Writer) error {
	d := demultiplexer{stdout: stdout, stderr: stderr}
	buffer := make([]byte, streamBuffer)
	filled := 0
	for {
		n, readErr := from.Read(buffer[filled:])
		rest, err := d.pass(buffer[:filled+n])
		if err != nil {
			return err
		}
		filled = copy(buffer, rest)
		switch {
		case readErr == nil:
		case errors.Is(readErr, io.EOF) && d.left == 0 && filled == 0:
			return nil
		case errors.Is(readErr, io.EOF), errors.Is(readErr, os.ErrDeadlineExceeded) && (d.left > 0 || filled > 0):
			return io.ErrUnexpectedEOF
		default:
			return readErr
		}
	}
}

// demultiplexer holds the position within a stream of frames.
type demultiplexer struct {
	stdout, stderr io.Writer
	// to receives the rest of the frame, and left is its length; to is nil for a
	// complaint.
	to        io.Writer
	left      uint32
	complaint []byte
}

// pass passes bytes on, and returns an incomplete header at the end.
func (d *demultiplexer) pass(p []byte) ([]byte, error) {
	for {
		if d.left == 0 {
			if len(p) < frameHeader {
				return p, nil
			}
			if err := d.begin(p[:frameHeader]); err != nil {
				return nil, err
			}
			p = p[frameHeader:]
		}
		piece := p[:min(len(p), int(min(d.left, streamBuffer)))]
		if d.to == nil {
			d.complaint = append(d.complaint, piece[:min(len(piece), complaintLimit-len(d.complaint))]...)
		} else if _, err := d.to.Write(piece); err != nil {
			return nil, err
		}
		d.left -= uint32(len(piece))
		p = p[len(piece):]
		switch {
		case d.left > 0:
			return nil, nil
		case d.to == nil:
			return nil, fmt.Errorf("the engine says: %q", said.Text(string(d.complaint)))
		}
	}
}

// begin reads the header of a frame.
func (d *demultiplexer) begin(header []byte) error {
	if header[1]|header[2]|header[3] != 0 {
		return errFrame
	}
	switch header[0] {
	case frameStdout:
		d.to = d.stdout
	case frameStderr:
		d.to = d.stderr
	case frameComplaint:
		d.to = nil
	default:
		return errFrame
	}
	d.left = binary.BigEndian.Uint32(header[4:])
	return nil
}
