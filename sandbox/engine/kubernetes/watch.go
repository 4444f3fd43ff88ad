package kubernetes

import (
	"context"
	"encoding/json"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// watcher follows the pods of all runs with one watch. It is safe for concurrent use.
type watcher struct {
	pods resources[*corev1.Pod, *corev1.PodList]

	mu sync.Mutex
	// last is the newest state of the pod of each Job. A pod that was deleted keeps its last state
	// while somebody waits for it, and gone says so.
	last map[string]*corev1.Pod
	gone map[string]bool
	// uids are the IDs of the Jobs that this process has made and not removed: pods of an earlier Job of the
	// name do not count.
	uids    map[string]types.UID
	wanted  map[string]int
	changed chan struct{} // closed and replaced at each change
	started bool
	stop    chan struct{}
}

func newWatcher(pods resources[*corev1.Pod, *corev1.PodList]) *watcher {
	return &watcher{pods: pods, last: map[string]*corev1.Pod{}, gone: map[string]bool{}, uids: map[string]types.UID{}, wanted: map[string]int{},
		changed: make(chan struct{}), stop: make(chan struct{})}
}

// Labels of a pod that name its Job.
const (
	jobLabel = "batch.kubernetes.io/job-name"
	uidLabel = "batch.kubernetes.io/controller-uid"
)

// want keeps the states of the pod of a Job, until forget.
func (w *watcher) want(job string) {
	w.mu.Lock()
	w.wanted[job]++
	start := !w.started
	w.started = true
	w.mu.Unlock()
	if !start {
		return
	}
	options := func(o *metav1.ListOptions) { o.LabelSelector = spec.LabelManaged + "=true" }
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			options(&o)
			return w.pods.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			options(&o)
			return w.pods.Watch(ctx, o)
		},
	}
	informer := cache.NewSharedInformer(source, &corev1.Pod{}, 0)
	_ = informer.SetTransform(func(object any) (any, error) { // fails only after the start
		if pod, ok := object.(*corev1.Pod); ok {
			pod.ManagedFields, pod.Spec.Volumes, pod.Annotations = nil, nil, nil
		}
		return object, nil
	})
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // the same
		AddFunc:    func(object any) { w.note(object, false) },
		UpdateFunc: func(_, object any) { w.note(object, false) },
		DeleteFunc: func(object any) { w.note(object, true) },
	})
	go informer.Run(w.stop)
}

// born notes a new Job.
func (w *watcher) born(job string, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uids[job] = uid
	if last := w.last[job]; last != nil && last.Labels[uidLabel] != string(uid) {
		delete(w.last, job)
		delete(w.gone, job)
	}
}

// removed undoes born. The Job may never have had a pod.
func (w *watcher) removed(job string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.uids, job)
}

// forget undoes one want.
func (w *watcher) forget(job string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wanted[job]--; w.wanted[job] > 0 {
		return
	}
	delete(w.wanted, job)
	if w.gone[job] { // the state of a pod that exists does not come again
		delete(w.last, job)
		delete(w.gone, job)
		delete(w.uids, job)
	}
}

func (w *watcher) note(object any, gone bool) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	job := pod.Labels[jobLabel]
	if uid := w.uids[job]; uid != "" && pod.Labels[uidLabel] != string(uid) {
		return
	}
	if last := w.last[job]; gone && last != nil && last.UID != pod.UID {
		return // of an earlier Job of that name
	}
	// All are kept: the pod may be seen before somebody wants it.
	w.last[job], w.gone[job] = pod, gone
	if gone && w.wanted[job] == 0 {
		delete(w.last, job)
		delete(w.gone, job)
		delete(w.uids, job)
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// pod returns the newest state of the pod of a Job: nil if none was seen. gone says that it was
// deleted; changed is closed at the next change of any pod.
func (w *watcher) pod(job string) (pod *corev1.Pod, gone bool, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last[job], w.gone[job], w.changed
}

func (w *watcher) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
}

// labelsOf reads the labels of evalbox and of the caller.
func labelsOf(annotations map[string]string) map[string]string {
	labels := map[string]string{}
	_ = json.Unmarshal([]byte(annotations[labelsAnnotation]), &labels) // somebody may have changed it
	return labels
}

// statusOf describes a Job for people.
func statusOf(status batchv1.JobStatus) string {
	for _, c := range status.Conditions {
		if c.Status == corev1.ConditionTrue {
			if c.Reason != "" {
				return string(c.Type) + " (" + c.Reason + ")"
			}
			return string(c.Type)
		}
	}
	if status.Active > 0 {
		return "Active"
	}
	return "Pending"
}
