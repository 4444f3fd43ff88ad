package kubernetes

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes/porter"
	"github.com/evalbox/evalbox/sandbox/engine/preload"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// readyPatience is how long init may take to report, once its pod can be reached.
	readyPatience = time.Minute
	// acceptPatience is how long init may take to accept a job.
	acceptPatience = 30 * time.Second
	// requestPatience is how long a request may be on its way to the porter.
	requestPatience = 15 * time.Second
	// endPatience is how long the cluster may take to say why a pod has ended.
	endPatience = 5 * time.Second
	// initRefuses is the exit code of an init that has no job.
	initRefuses = 125
	// warmPatience is how long a command may take that only brings files into memory.
	warmPatience = 10 * time.Second
)

// instance is one container: the pod of one Job.
type instance struct {
	engine *adapter
	job    string
	class  spec.Class
	// files says that the pod has the files of its run: it stays until its volume is removed.
	files    bool
	nonce    wire.Nonce
	session  *porter.Session
	receiver *wire.Receiver
	warnings []string
	stdout   *sink
	stderr   *sink
	preloads bool
	ready    wire.Ready

	resuming sync.Mutex

	mu sync.Mutex
	// begun says that there was a call to start the job, or that the container was opened again.
	begun, opened bool
	began         time.Time
	// sent says that evalbox requested the end; aborted, that it has killed the pod.
	sent, aborted bool
	end           *engine.End
	// waiting is held by the goroutine that waits for the end.
	waiting chan struct{}
}

var _ engine.Container = (*instance)(nil)

// sink is the destination of a stream. After the writer fails, nothing more is written to it.
type sink struct {
	to     io.Writer
	failed bool
}

func (s *sink) Write(p []byte) (int, error) {
	if s.to != nil && !s.failed {
		_, err := s.to.Write(p)
		s.failed = err != nil
	}
	return len(p), nil
}

func (e *adapter) newInstance(job string, nonce wire.Nonce) *instance {
	return &instance{engine: e, job: job, nonce: nonce, waiting: make(chan struct{}, 1)}
}

// newClient identifies a controller to the porter.
func newClient() string {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}

// connect begins the session with the porter.
func (c *instance) connect(ctx context.Context) error {
	e := c.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open == nil {
		return errors.New("the engine is closed")
	}
	e.open[c] = struct{}{}
	e.pods.want(c.job)
	c.session = porter.Open(ctx, e.dialer(c.job), newClient(), engine.ReconnectBudget/2, c.receiver.Stdout(), c.receiver.Stderr())
	return nil
}

// disconnect ends the session, and forgets the pod.
func (c *instance) disconnect() {
	c.session.Cut()
	e := c.engine
	e.mu.Lock()
	_, known := e.open[c]
	delete(e.open, c)
	e.mu.Unlock()
	if known {
		e.pods.forget(c.job)
	}
}

// until waits for an answer of init. It ends with the session.
func (c *instance) until(ctx context.Context, limit time.Duration, wait func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSilent)
	defer cancel()
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	over := c.session.Over()
	go func() {
		select {
		case <-over:
			stop(errOver)
		case <-waiting.Done():
		}
	}()
	return wait(waiting)
}

var (
	errOver   = errors.New("the session is over")
	errSilent = fmt.Errorf("%w: it did not answer in time", engine.ErrUnavailable)
)

// open waits until init is ready.
func (c *instance) open(ctx context.Context, warm []string) error {
	wait, waits, err := preload.Wait(c.class, oomScore)
	if err != nil {
		return err
	}
	c.preloads = c.class.Preload.Fits()
	if !waits && len(warm) > 0 {
		wait, waits = wire.Wait{Args: warm, Dir: c.class.WorkDir, Patience: warmPatience, OOMScoreAdj: oomScore}, true
	}
	// The dialer ends the session of a pod that cannot start, after the schedule timeout.
	limit := c.engine.config.ScheduleTimeout + readyPatience
	err = c.until(ctx, limit, func(ctx context.Context) (err error) {
		c.ready, err = c.receiver.Ready(ctx)
		return err
	})
	if err == nil {
		err = c.checkNetwork(ctx)
	}
	if err == nil {
		pod, _, _ := c.engine.pods.pod(c.job)
		if refused := checkImage(pod, c.class.Image.Digest); refused != nil {
			return refused
		}
	}
	switch {
	case err != nil:
		return c.whySilent(ctx, err)
	case c.ready.Build != wire.BuildID():
		return fmt.Errorf("%w: the image %s does not hold the init of this version; set kubernetes.programs to the image of this release",
			engine.ErrProtocol, c.engine.config.Programs)
	case !waits:
		return nil
	}
	frame, err := wait.Encode()
	if err != nil {
		return err
	}
	go func() { _, _ = c.session.Write(frame) }() // a failed write shows as the end of the session
	if err := c.until(ctx, wait.Patience+readyPatience, func(ctx context.Context) error {
		_, err := c.receiver.Waiting(ctx)
		return err
	}); err != nil {
		return c.whySilent(ctx, err)
	}
	return nil
}

// whySilent says why init did not answer.
func (c *instance) whySilent(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !errors.Is(err, errOver) {
		return fmt.Errorf("container %s: %w", c.job, err)
	}
	why := c.session.Why()
	var start *StartError
	switch {
	case errors.As(why, &start):
		return start
	case why == nil:
		pod, _, _ := c.engine.pods.pod(c.job)
		return fmt.Errorf("%w: Job %s: init ended before it was ready, and said %.500q%s", engine.ErrProtocol, c.job, c.receiver.Complaint(), complaintOf(pod))
	case errors.Is(why, porter.ErrGone):
		return fmt.Errorf("container %s: %w: %w", c.job, engine.ErrNotStarted, why)
	}
	return fmt.Errorf("%w: Job %s: %w", engine.ErrUnavailable, c.job, why)
}

// Ref implements [engine.Container].
func (c *instance) Ref() engine.Ref { return engine.Ref{ID: c.job, Nonce: c.nonce.String()} }

// Ready implements [engine.Container].
func (c *instance) Ready() wire.Ready {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened && c.ready.Build == "" {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		c.ready, _ = c.receiver.Ready(now) // it stays unknown until it has arrived
	}
	return c.ready
}

// Look implements [engine.Container].
func (c *instance) Look(ctx context.Context) (wire.Ready, error) {
	c.mu.Lock()
	begun := c.begun
	c.mu.Unlock()
	if begun {
		return wire.Ready{}, fmt.Errorf("container %s has had its job", c.job)
	}
	var ready wire.Ready
	err := c.stays(ctx)
	if err == nil {
		err = c.until(ctx, acceptPatience, func(ctx context.Context) (err error) {
			ready, err = c.receiver.Look(ctx, c.session)
			return err
		})
	}
	if err != nil {
		return ready, fmt.Errorf("looking at container %s: %w", c.job, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = ready
	return ready, nil
}

// stays returns an error if somebody has deleted the Job or its pod: init may answer for a while.
func (c *instance) stays(ctx context.Context) error {
	e := c.engine
	job, err := e.api.jobs().Get(ctx, c.job, metav1.GetOptions{})
	if err != nil {
		return clusterError(ctx, err)
	}
	pods, err := e.api.pods().List(ctx, metav1.ListOptions{LabelSelector: jobLabel + "=" + c.job})
	if err != nil {
		return clusterError(ctx, err)
	}
	if job.DeletionTimestamp != nil || len(pods.Items) == 0 || pods.Items[0].DeletionTimestamp != nil {
		return fmt.Errorf("%w: it is being deleted", engine.ErrNoContainer)
	}
	return nil
}

// Warnings implements [engine.Container].
func (c *instance) Warnings() []string { return c.warnings }

// Start implements [engine.Container].
func (c *instance) Start(ctx context.Context, job spec.Job, streams engine.Streams) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	order := engine.WireJob(job, c.class.WorkDir, c.nonce, oomScore, c.Ready())
	order.ToWaiter = c.preloads
	order.Rlimits = append(rlimits(c.class), order.Rlimits...)
	frame, err := order.Encode()
	if err != nil {
		return fmt.Errorf("handing the job to container %s: %w", c.job, err)
	}
	c.mu.Lock()
	if c.begun {
		c.mu.Unlock()
		return fmt.Errorf("container %s has had its job", c.job)
	}
	c.begun, c.began = true, time.Now()
	c.stdout, c.stderr = &sink{to: streams.Stdout}, &sink{to: streams.Stderr}
	c.mu.Unlock()
	c.receiver.Begin(c.nonce, c.stdout, c.stderr)
	if _, err := c.session.Write(frame); err != nil {
		return fmt.Errorf("%w: handing the job to container %s: %w", engine.ErrUnavailable, c.job, err)
	}
	err = c.until(context.WithoutCancel(ctx), acceptPatience, c.receiver.Accepted)
	switch {
	case err == nil:
		if job.Stdin {
			go engine.PumpInput(c.session, streams.Stdin, c.receiver.Over())
		}
		return nil
	case errors.Is(err, errOver), errors.Is(err, engine.ErrUnavailable), errors.Is(err, wire.ErrCut):
		return fmt.Errorf("%w: handing the job to container %s: %w", engine.ErrUnavailable, c.job, err)
	}
	return fmt.Errorf("handing the job to container %s: %w: %w", c.job, engine.ErrProtocol, err)
}

// Wait implements [engine.Container].
func (c *instance) Wait(ctx context.Context) (engine.End, error) {
	select {
	case c.waiting <- struct{}{}:
		defer func() { <-c.waiting }()
	case <-ctx.Done():
		return engine.End{}, ctx.Err()
	}
	if c.end != nil {
		return *c.end, nil
	}
	end, err := c.await(ctx)
	if err == nil {
		c.end = &end
	}
	return end, err
}

// await waits for the report, or for the end of the pod without one.
func (c *instance) await(ctx context.Context) (engine.End, error) {
	c.resume(ctx)
	select {
	case <-c.receiver.Over():
	case <-c.session.Over():
	case <-ctx.Done():
		return engine.End{}, ctx.Err()
	}
	select {
	case <-c.receiver.Over():
		report, err := c.receiver.End(ctx)
		if err != nil {
			return engine.End{}, fmt.Errorf("%w: %w", engine.ErrProtocol, err)
		}
		return c.reported(ctx, report), nil
	default:
	}
	why := c.session.Why()
	switch {
	case why == nil:
		c.receiver.Close(nil)
		return c.silent(ctx)
	case errors.Is(why, porter.ErrGone) || c.isAborted():
		c.receiver.Close(why)
		return c.silent(ctx)
	}
	return engine.End{}, fmt.Errorf("%w: container %s: %w", engine.ErrUnavailable, c.job, why)
}

func (c *instance) isAborted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.aborted
}

// resume continues a session that was cut, or that has lost its pod.
func (c *instance) resume(ctx context.Context) {
	c.resuming.Lock()
	defer c.resuming.Unlock()
	if c.isAborted() {
		return
	}
	select {
	case <-c.session.Over():
		if why := c.session.Why(); why != nil && !errors.Is(why, porter.ErrGone) {
			c.session.Resume(ctx)
		}
	default:
	}
}

// reported translates the report of init.
func (c *instance) reported(ctx context.Context, r wire.Report) engine.End {
	end := engine.EndOf(r)
	broken, gap := c.session.Broken()
	end.Complete, end.Interrupted = !gap, broken
	pod, _, _ := c.engine.pods.pod(c.job)
	end.Image = imageOf(pod) // nobody waits for it
	c.mu.Lock()
	sent, opened := c.sent, c.opened
	c.mu.Unlock()
	if c.preloads || opened {
		end.NotPreloaded = r.Waiter.WhyNot()
	}
	if end.Cause == engine.BySignal && !sent {
		// The kernel can lose the sender of a signal, so a program can make its own signal look
		// foreign to init. The cluster says whether it stops the pod.
		for _, request := range c.session.Asked() { // of another controller
			end.Foreign = append(end.Foreign, map[byte]string{wire.RequestStop: "SIGTERM", wire.RequestKill: "SIGUSR1"}[request])
		}
		if len(end.Foreign) == 0 {
			c.explain(ctx, &end, c.stopped(ctx))
		}
		if len(end.Foreign) == 0 && end.Loss == engine.NotLost {
			end.Cause = engine.ByItself
		}
	}
	return end
}

// silent returns the end of a pod whose init did not report one.
func (c *instance) silent(ctx context.Context) (engine.End, error) {
	broken, _ := c.session.Broken()
	end := engine.End{NoJob: c.receiver.Unanswered(), Interrupted: broken}
	c.mu.Lock()
	end.Interrupted = end.Interrupted && !c.sent // an abort cuts the session
	if !c.began.IsZero() {
		end.StartedAt, end.FinishedAt, end.Duration = c.began, time.Now(), time.Since(c.began)
	}
	c.mu.Unlock()
	pod := c.stopped(ctx)
	c.explain(ctx, &end, pod)
	end.Image = imageOf(pod)
	switch status, ok := statusOfMain(pod); {
	case ok:
		end.ExitCode, end.OOMKilled = int(status.ExitCode), status.Reason == reasonOOM
		// The porter of an init that never had a job ends with it, and its copy of the output.
		end.NoJob = end.NoJob || end.ExitCode == initRefuses && !c.receiver.Began()
	case pod == nil && end.Loss == engine.NotLost:
		end.Interrupted, end.Foreign = true, []string{"SIGKILL"}
		return end, fmt.Errorf("%w: container %s", engine.ErrNoContainer, c.job)
	}
	return end, nil
}

// stopped waits a moment for the cluster to say why the pod ends, and returns its state; nil if there
// is none.
func (c *instance) stopped(ctx context.Context) *corev1.Pod {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	for {
		pod, gone, changed := c.engine.pods.pod(c.job)
		if pod != nil {
			if _, ended := statusOfMain(pod); ended || gone || pod.DeletionTimestamp != nil || lossOf(pod) != engine.NotLost {
				return pod
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return pod
		}
	}
}

// explain adds what the cluster says of the end of a pod.
func (c *instance) explain(ctx context.Context, end *engine.End, pod *corev1.Pod) {
	c.mu.Lock()
	sent := c.sent
	c.mu.Unlock()
	if end.Loss = lossOf(pod); end.Loss != engine.NotLost || pod == nil || pod.DeletionTimestamp == nil || sent {
		return
	}
	if end.Loss = c.engine.whyDeleted(ctx, c.job, pod); end.Loss != engine.NotLost {
		return
	}
	end.Foreign = []string{"SIGTERM"}
}

// Signal implements [engine.Container].
func (c *instance) Signal(ctx context.Context, how engine.Signal) error {
	c.mu.Lock()
	c.sent = true
	c.aborted = c.aborted || how == engine.Abort // what init may say while it is being killed is not awaited
	c.mu.Unlock()
	switch how {
	case engine.Stop:
		return c.request(ctx, wire.RequestStop)
	case engine.Kill:
		return c.request(ctx, wire.RequestKill)
	case engine.Abort:
	}
	return c.engine.removePods(ctx, c.job)
}

// request sends a request to init, unless it has ended.
func (c *instance) request(ctx context.Context, what byte) error {
	c.resume(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, requestPatience, errSilent)
	defer cancel()
	select {
	case <-c.receiver.Over():
		return nil
	default:
	}
	if err := c.session.Request(ctx, what); err != nil && !errors.Is(err, porter.ErrGone) && !c.isAborted() {
		return fmt.Errorf("%w: asking container %s to end: %w", engine.ErrUnavailable, c.job, err)
	}
	return nil
}

// Disconnect implements [engine.Container].
func (c *instance) Disconnect() { c.session.Cut() }

// Release implements [engine.Container].
func (c *instance) Release() { c.session.CloseIn() }

// Sample implements [engine.Container]. A pod has no counters that its controller may read.
func (c *instance) Sample(context.Context) (engine.Usage, bool) { return engine.Usage{}, false }

// Remove implements [engine.Container]. The pod of a run whose files are copied only ends its program:
// it has the files until its volume is removed.
func (c *instance) Remove(ctx context.Context) error {
	var err error
	if c.files {
		c.kill(ctx)
	} else {
		err = c.engine.Remove(ctx, c.job)
	}
	c.disconnect()
	return err
}

// kill ends the program, and waits until init says so.
func (c *instance) kill(ctx context.Context) {
	select {
	case <-c.receiver.Over():
		return
	default:
	}
	c.mu.Lock()
	begun := c.begun
	c.sent = true
	c.mu.Unlock()
	if !begun {
		return // there is no program
	}
	if c.request(context.WithoutCancel(ctx), wire.RequestKill) != nil {
		return // the removal of the volume ends it
	}
	_ = c.until(context.WithoutCancel(ctx), acceptPatience, func(ctx context.Context) error {
		_, err := c.receiver.End(ctx)
		return err
	})
}
