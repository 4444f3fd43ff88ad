package main

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox"
)

// place is an engine for tools, with the functions around a run.
type place struct {
	option invoke.Option
	// begin is called before the tool is started, ended when it has ended, close at last.
	begin, ended, close func()
}

// placeOf is the engine that the flags name.
func (a *app) placeOf(ctx context.Context, s settings.Settings, f invokeFlags) (place, error) {
	if f.engine == invoke.EngineHost {
		return a.hostPlace(ctx, s), nil
	}
	runner, err := a.runner(s)
	if err != nil {
		return place{}, err
	}
	req := s.Request()
	req.Keep = f.keep
	var hooks sandbox.Hooks
	var streams sandbox.IO
	live := a.connect(&streams, s)
	watched := live.watch(ctx, a, &hooks, s)
	return place{
		option: invoke.WithSandbox(invoke.Sandbox{Runner: a.watched(runner), Request: req, IO: streams, Hooks: hooks}),
		begin:  func() {},
		ended: func() {
			watched()
			_ = live.finish() // the result has all output
		},
		close: func() { _ = runner.Close() },
	}, nil
}

// host is this machine, without live output.
func (a *app) host(s settings.Settings) invoke.Host {
	return invoke.Host{
		Clock: machineClock{}, Grace: s.Limits.Grace, Kill: a.streams.Kill,
		CaptureStdout: s.Limits.CaptureStdout, CaptureStderr: s.Limits.CaptureStderr,
	}
}

// hostPlace is this machine.
func (a *app) hostPlace(ctx context.Context, s settings.Settings) place {
	host := a.host(s)
	var shown sandbox.IO
	live := a.connect(&shown, s)
	if shown.Stdout != nil {
		var turn sync.Mutex
		host.Stdout, host.Stderr = &inTurn{&turn, shown.Stdout}, &inTurn{&turn, shown.Stderr}
	}
	end, announced := func() {}, func() {}
	return place{
		option: invoke.WithHost(host),
		begin: func() {
			end = a.streams.Runs.Begin()
			if !a.isQuiet(s) {
				announced = live.announceEnd(ctx)
			}
		},
		ended: func() {
			end()
			announced()
			_ = live.finish()
		},
		close: func() {},
	}
}

// machineClock is the clock of this machine.
type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }

func (machineClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// inTurn lets two streams share a writer.
type inTurn struct {
	turn *sync.Mutex
	out  io.Writer
}

func (w *inTurn) Write(p []byte) (int, error) {
	w.turn.Lock()
	defer w.turn.Unlock()
	return w.out.Write(p)
}
