package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNothingIsKeptOfARunThatIsOver: a controller may run for months.
func TestNothingIsKeptOfARunThatIsOver(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p", Labels: map[string]string{jobLabel: "job", uidLabel: "u"}}}
	for name, life := range map[string]func(w *watcher){
		"its pod ends first": func(w *watcher) {
			w.note(pod, false)
			w.note(pod, true)
			w.forget("job")
			w.removed("job")
		},
		"its pod ends last": func(w *watcher) {
			w.note(pod, false)
			w.removed("job")
			w.forget("job")
			w.note(pod, false)
			w.note(pod, true)
		},
		"it never had a pod": func(w *watcher) {
			w.forget("job")
			w.removed("job")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatcher(nil)
			w.started = true // without a cluster
			w.born("job", "u")
			w.want("job")
			life(w)
			require.Empty(t, w.uids)
			require.Empty(t, w.last)
			require.Empty(t, w.gone)
			require.Empty(t, w.wanted)
		})
	}
}
