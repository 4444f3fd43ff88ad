package browse

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"time"
)

// update is one event of a live page: a fragment of HTML that takes the place of the content of an
// element, or is appended to it.
type update struct {
	Target string `json:"target"`
	HTML   string `json:"html"`
	Append bool   `json:"append,omitempty"`
	// Reset empties the element first.
	Reset bool `json:"reset,omitempty"`
}

const (
	// liveInterval is how often a live page is looked at again.
	liveInterval = 500 * time.Millisecond
	// heartbeat is how often something is sent, so that a browser that went away is noticed.
	heartbeat = 15 * time.Second
	// writeTime bounds one write to a browser.
	writeTime = 10 * time.Second
)

// stream sends updates until the browser goes, or the server ends, or look says that nothing more
// will change. What did not change since it was last sent is left out.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, look func() (updates []update, last bool)) {
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return // it would be sent nothing, without end
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, "Too many live pages are open. Close some of them.")
		return
	}
	control := http.NewResponseController(w)
	send := func(text string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(writeTime)) // a recorder of a test has none
		_, err := w.Write([]byte(text))
		return err == nil && control.Flush() == nil
	}
	sent := map[string][sha256.Size]byte{}
	if !send("retry: 2000\n\n") {
		return
	}
	spoke := time.Now()
	tick := time.NewTicker(liveInterval)
	defer tick.Stop()
	for {
		updates, last := look()
		for _, u := range updates {
			sum := sha256.Sum256([]byte(u.HTML))
			if !u.Append && sent[u.Target] == sum {
				continue
			}
			sent[u.Target] = sum
			var data bytes.Buffer
			if err := json.NewEncoder(&data).Encode(u); err != nil {
				return
			}
			if !send("data: " + data.String() + "\n") {
				return
			}
			spoke = time.Now()
		}
		if last {
			send("event: end\ndata: {}\n\n")
			return
		}
		if time.Since(spoke) > heartbeat {
			if !send(": \n\n") {
				return
			}
			spoke = time.Now()
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
	}
}
