package sandbox

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/pkg/stdcopy"
)

// Attach implements [Engine].
func (e *dockerEngine) Attach(ctx context.Context, id string, stdin bool) (Streams, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	hijacked, err := e.attach(ctx, id, container.AttachOptions{Stream: true, Stdin: stdin, Stdout: true, Stderr: true})
	if err != nil {
		return nil, fmt.Errorf("attaching to container %.12s: %w", id, engineError(ctx, err))
	}
	s := &dockerStreams{hijacked: hijacked}
	s.close = sync.OnceValue(hijacked.Conn.Close)
	if stdin {
		s.stdin = &dockerStdin{hijacked: hijacked}
	}
	return s, nil
}

// attach ends with its context. The client's own call does not: it writes and
// reads by itself on a connection that it has taken over.
func (e *dockerEngine) attach(ctx context.Context, id string, options container.AttachOptions) (types.HijackedResponse, error) {
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
		// Too late: nobody waits for it any more.
		if <-attached; err == nil {
			hijacked.Close()
		}
	}()
	return types.HijackedResponse{}, ctx.Err()
}

type dockerStreams struct {
	hijacked types.HijackedResponse
	stdin    *dockerStdin
	close    func() error
}

func (s *dockerStreams) Copy(stdout, stderr io.Writer) error {
	_, err := stdcopy.StdCopy(stdout, stderr, s.hijacked.Reader)
	if err != nil {
		return fmt.Errorf("reading the program's output: %w", err)
	}
	return nil
}

func (s *dockerStreams) Stdin() io.WriteCloser {
	if s.stdin == nil {
		return nil
	}
	return s.stdin
}

func (s *dockerStreams) Close() error { return s.close() }

type dockerStdin struct{ hijacked types.HijackedResponse }

func (s *dockerStdin) Write(p []byte) (int, error) { return s.hijacked.Conn.Write(p) }
func (s *dockerStdin) Close() error                { return s.hijacked.CloseWrite() }

// Wait implements [Engine]. The condition is next-exit: not-running is already
// true before the start and would answer 0 at once.
func (e *dockerEngine) Wait(ctx context.Context, id string) <-chan Exit {
	exits := make(chan Exit, 1)
	statuses, errs := e.api.ContainerWait(ctx, id, container.WaitConditionNextExit)
	go func() {
		select {
		case status := <-statuses:
			exit := Exit{Code: int(status.StatusCode)}
			if status.Error != nil {
				exit.Err = fmt.Errorf("waiting for container %.12s: %s", id, status.Error.Message)
			}
			exits <- exit
		case err := <-errs:
			exits <- Exit{Err: fmt.Errorf("waiting for container %.12s: %w", id, engineError(ctx, err))}
		}
	}()
	return exits
}

// Start implements [Engine].
func (e *dockerEngine) Start(ctx context.Context, id string) error {
	ctx, cancel := callContext(ctx, 2*callTimeout)
	defer cancel()
	if err := e.api.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return fmt.Errorf("starting container %.12s: %w", id, engineError(ctx, err))
	}
	return nil
}

// Signal implements [Engine].
func (e *dockerEngine) Signal(ctx context.Context, id, signal string) error {
	err := e.api.ContainerKill(ctx, id, signal)
	if err == nil || errdefs.IsConflict(err) || errdefs.IsNotFound(err) {
		// A conflict means that the container is not running (any more).
		return nil
	}
	return fmt.Errorf("sending %s to container %.12s: %w", signal, id, engineError(ctx, err))
}

// Inspect implements [Engine].
func (e *dockerEngine) Inspect(ctx context.Context, id string) (State, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	info, err := e.api.ContainerInspect(ctx, id)
	if errdefs.IsNotFound(err) {
		return State{}, fmt.Errorf("inspecting container %.12s: %w", id, ErrNoContainer)
	}
	if err != nil {
		return State{}, fmt.Errorf("inspecting container %.12s: %w", id, engineError(ctx, err))
	}
	state := State{TTY: info.Config != nil && info.Config.Tty}
	if info.State != nil {
		state.Running = info.State.Running
		state.PID = info.State.Pid
		state.ExitCode = info.State.ExitCode
		state.OOMKilled = info.State.OOMKilled
		state.Error = info.State.Error
		state.StartedAt = engineTime(info.State.StartedAt)
		state.FinishedAt = engineTime(info.State.FinishedAt)
	}
	return state, nil
}

// engineTime reads a time of the engine; the year 1 means never.
func engineTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() <= 1 {
		return time.Time{}
	}
	return t.UTC()
}

// Interference implements [Engine]. A daemon that is stopped sends SIGTERM to
// every container and then reports exit code 143 as if the program had chosen
// it; so does `docker stop`. Both leave a kill event, the program itself none.
func (e *dockerEngine) Interference(ctx context.Context, id string, since time.Time) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	messages, errs := e.api.Events(ctx, events.ListOptions{
		Since:   eventTime(since),
		Until:   eventTime(time.Now()), // a time to come would make the call wait for it
		Filters: filters.NewArgs(filters.Arg("container", id), filters.Arg("event", "kill")),
	})
	var signals []string
	for {
		select {
		case message := <-messages:
			signals = append(signals, message.Actor.Attributes["signal"])
		case err := <-errs:
			if err == nil || strings.Contains(err.Error(), io.EOF.Error()) {
				return signals, nil
			}
			return signals, fmt.Errorf("asking for events of container %.12s: %w", id, engineError(ctx, err))
		}
	}
}

// Remove implements [Engine].
func (e *dockerEngine) Remove(ctx context.Context, id string) error {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	for {
		err := e.api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err):
			return fmt.Errorf("removing container %.32s: %w", id, engineError(ctx, err))
		}
		// Somebody else's removal is in progress; it may still fail.
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing container %.32s: %w", id, err)
		case <-time.After(removePoll):
		}
	}
}

// removePoll is how often a removal by somebody else is looked at.
const removePoll = 50 * time.Millisecond

// List implements [Engine].
func (e *dockerEngine) List(ctx context.Context) ([]Container, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	found, err := e.api.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", LabelManaged+"=true")),
	})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", e.questionError(ctx, err))
	}
	containers := make([]Container, 0, len(found))
	for _, c := range found {
		name := ""
		if len(c.Names) > 0 {
			name = strings.TrimPrefix(c.Names[0], "/")
		}
		containers = append(containers, Container{
			ID: c.ID, Name: name, Image: c.Image, Labels: c.Labels,
			Running: c.State == "running" || c.State == "paused" || c.State == "restarting",
			Ended:   c.State == "exited" || c.State == "dead",
			Status:  c.Status, CreatedAt: time.Unix(c.Created, 0).UTC(),
		})
	}
	return containers, nil
}

// eventTime renders a time as the events call takes it.
func eventTime(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }
