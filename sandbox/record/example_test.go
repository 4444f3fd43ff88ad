package record_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/evalbox/evalbox/sandbox/record"
)

func Example() {
	dir, err := os.MkdirTemp("", "state-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := record.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	records, err := store.List()
	fmt.Println(len(records), err)
	_, err = store.Get("r1")
	fmt.Println(errors.Is(err, record.ErrNoRecord), err)
	// Output:
	// 0 <nil>
	// true run "r1": no such run
}
