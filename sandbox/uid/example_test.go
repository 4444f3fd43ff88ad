package uid_test

import (
	"fmt"

	"github.com/evalbox/evalbox/sandbox/uid"
)

func ExampleParseRange() {
	r, err := uid.ParseRange("70000-99999")
	fmt.Println(r, r.Contains(64646), err)
	_, err = uid.ParseRange("9-7")
	fmt.Println(err != nil)
	// Output:
	// 70000-99999 false <nil>
	// true
}
