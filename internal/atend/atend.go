// Package atend lets a job's callees leave something to be done once the result of the job is
// on disk.
package atend

import (
	"context"
	"sync"
)

type key struct{}

type list struct {
	mu  sync.Mutex
	all []func()
}

// With returns a context for a job. Done does what was left, once.
func With(ctx context.Context) (_ context.Context, done func()) {
	l := &list{}
	return context.WithValue(ctx, key{}, l), func() {
		l.mu.Lock()
		all := l.all
		l.all = nil
		l.mu.Unlock()
		for _, do := range all {
			do()
		}
	}
}

// Leave leaves do for the end of the job. Without a job it is not done, and the answer is
// false.
func Leave(ctx context.Context, do func()) bool {
	l, ok := ctx.Value(key{}).(*list)
	if !ok {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, do)
	return true
}
