package attest_test

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/gate/attest"
)

func ExampleCheckKey() {
	fmt.Println(attest.CheckKey([]byte("not a key")) != nil)
	// Output: true
}
