package lock_test

import (
	"errors"
	"fmt"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
)

// A run may use an image if the lock has an entry with its content or its ID.
func ExampleLock_Check() {
	held := lock.Lock{Source: "images.lock"}.With(lock.Entry{Name: "debian", Content: "sha256:aa"})
	err := held.Check(images.Resolved{Name: "debian", CatalogName: true, Content: "sha256:aa"})
	fmt.Println(err)
	err = held.Check(images.Resolved{Name: "debian", CatalogName: true, Content: "sha256:bb"})
	fmt.Println(errors.Is(err, lock.ErrUnlocked))
	// Output:
	// <nil>
	// true
}
