package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// execution is a process in a container of a pod, with its streams.
type execution struct {
	stdin  *io.PipeWriter
	stdout *io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	// complaint is the beginning of its stderr.
	complaint head
}

// execute starts a command in a container. Its end, and that of the connection, is the end of
// stdout.
func (e *adapter) execute(ctx context.Context, pod, container string, stderr io.Writer, command ...string) (*execution, error) {
	_, parameters := kinds()
	at := e.api.core.Post().Namespace(e.config.Namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdin: true, Stdout: true, Stderr: true}, parameters).URL()
	socket, err := remotecommand.NewWebSocketExecutor(e.rest, "GET", at.String())
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(e.rest, "POST", at)
	if err != nil {
		return nil, err
	}
	executor, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return nil, err
	}
	inReader, inWriter := io.Pipe()
	outReader, outWriter := io.Pipe()
	x := &execution{stdin: inWriter, stdout: outReader, done: make(chan struct{})}
	if stderr == nil {
		stderr = &x.complaint
	}
	ctx, x.cancel = context.WithCancel(ctx)
	go func() {
		defer close(x.done)
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: inReader, Stdout: outWriter, Stderr: stderr})
		if said := x.complaint.String(); err != nil && said != "" {
			err = fmt.Errorf("%w: it said %.500q", err, said)
		}
		x.err = err
		_ = inReader.CloseWithError(io.ErrClosedPipe) // never fails
		if err == nil {
			err = io.EOF
		}
		_ = outWriter.CloseWithError(err) // never fails
	}()
	return x, nil
}

func (x *execution) Read(p []byte) (int, error)  { return x.stdout.Read(p) }
func (x *execution) Write(p []byte) (int, error) { return x.stdin.Write(p) }

// Close breaks the connection.
func (x *execution) Close() error {
	x.cancel()
	_ = x.stdin.Close()
	_ = x.stdout.CloseWithError(io.ErrClosedPipe)
	return nil
}

// conversation is a helper process whose streams are read apart.
type conversation struct {
	*execution
	stderr *io.PipeReader
	close  sync.Once
}

// Copy implements [engine.Conversation].
func (c *conversation) Copy(stdout, stderr io.Writer) error {
	apart := make(chan struct{})
	go func() {
		defer close(apart)
		_, _ = io.Copy(stderr, c.stderr)
	}()
	_, err := io.Copy(stdout, c.stdout)
	<-apart
	if errors.Is(err, io.ErrClosedPipe) && c.err == nil {
		err = nil
	}
	return err
}

// Stdin implements [engine.Conversation].
func (c *conversation) Stdin() io.WriteCloser { return c.stdin }

// Close implements [engine.Conversation].
func (c *conversation) Close() error {
	c.close.Do(func() {
		_ = c.execution.Close()
		_ = c.stderr.Close()
	})
	return nil
}

// head keeps the beginning of what is written to it. It is safe for concurrent use.
type head struct {
	mu   sync.Mutex
	text []byte
}

const headBytes = 1 << 10

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.text = append(h.text, p[:min(len(p), headBytes-len(h.text))]...)
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.text)
}
