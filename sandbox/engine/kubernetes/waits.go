package kubernetes

import (
	"fmt"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/sandbox/engine"
)

var _ engine.Waits = (*adapter)(nil)

const (
	// waitBytes bounds the text of a reason, and waitReasons the reasons of one container.
	waitBytes   = 300
	waitReasons = 8
)

// waits reports why pods wait. It is safe for concurrent use.
type waits struct {
	mu    sync.Mutex
	ofJob map[string]*wait
}

// wait is the caller of one container, and the reasons that it has heard.
type wait struct {
	say  func(why string)
	said map[string]bool
}

// OnWait implements [engine.Waits].
func (e *adapter) OnWait(name string, say func(why string)) (stop func()) {
	w, job := &e.waits, jobName(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ofJob == nil {
		w.ofJob = map[string]*wait{}
	}
	w.ofJob[job] = &wait{say, map[string]bool{}}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.ofJob, job)
	}
}

// report reports the reason of a wait, unless it was reported. Reasons that differ in their numbers alone
// are the same: those of a busy cluster change all the time.
func (w *waits) report(job, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	to := w.ofJob[job]
	if to == nil || len(to.said) >= waitReasons {
		return
	}
	reason := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, why)
	if !to.said[reason] {
		to.said[reason] = true
		to.say(fmt.Sprintf("%.*s", waitBytes, why))
	}
}

// The reasons, as they follow "waiting for".

func waitForQueue(queue string) string {
	if queue == "" {
		return "somebody to resume its Job, which is suspended"
	}
	return "quota of the queue " + queue
}

func waitForQuota(message string) string {
	// The beginning has a random name of a pod.
	if i := strings.Index(message, exceeded); i >= 0 {
		message = message[i:]
	}
	return "quota of the namespace: " + message
}

func waitForPod(trouble *StartError) string {
	if strings.HasPrefix(trouble.Reason, "ErrImage") {
		return "its image: " + trouble.Message
	}
	return "a node: " + nonEmpty(trouble.Message, trouble.Reason)
}

// exceeded begins what a quota says.
const exceeded = "exceeded quota"
