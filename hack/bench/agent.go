//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// agent is a client of `sandbox mcp`, which keeps containers ready.
type agent struct {
	*mcp.ClientSession

	store *record.Store
	// ran says that a run has said what is to wait.
	ran bool
}

// startAgent starts the server.
func (b *bench) startAgent(ctx context.Context) error {
	c := cli{b.cli.program, filepath.Join(b.dir, "mcp")}
	store, err := record.Open(c.stateDir)
	if err != nil {
		return err
	}
	server := c.command(context.WithoutCancel(ctx), "mcp", "--root", b.empty)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "bench"}, nil).Connect(ctx, &mcp.CommandTransport{Command: server}, nil)
	if err != nil {
		return fmt.Errorf("sandbox mcp: %w", err)
	}
	b.agent = &agent{ClientSession: session, store: store}
	b.closers = append(b.closers, session.Close)
	return nil
}

// agentRun is the call of a tool that runs the Python code of a task.
func (b *bench) agentRun(ctx context.Context, t task) (sample, error) {
	began := time.Now()
	res, err := b.agent.CallTool(ctx, &mcp.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": t.program[len(t.program)-1]}})
	if err != nil {
		return sample{}, err
	}
	s := sample{took: time.Since(began)}
	b.agent.ran = true
	text, err := json.Marshal(res.StructuredContent)
	var answer struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	}
	if err = errors.Join(err, json.Unmarshal(text, &answer)); err != nil || answer.Status != "exited" {
		return s, errors.Join(err, fmt.Errorf("run_python: %s", text))
	}
	run, err := b.agent.store.Get(answer.ID)
	if err != nil {
		return s, err
	}
	s.cold = whyCold(run.Result)
	return s, nil
}

// agentReady waits until a container waits for the next call, unless there was none yet.
func (b *bench) agentReady(ctx context.Context, _ task) error {
	return poll(ctx, 10*time.Millisecond, func() (bool, error) {
		found, err := b.engine.List(ctx)
		for _, c := range found {
			if b.agent.waits(c) {
				return true, err
			}
		}
		return !b.agent.ran, err
	})
}

// waits reports whether a container waits for a call.
func (a *agent) waits(c engine.Found) bool {
	return c.Labels[spec.LabelState] == a.store.Dir() && a.store.IsWaiting(c.Labels[spec.LabelRun])
}
