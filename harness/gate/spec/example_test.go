package spec_test

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/gate/spec"
)

func ExampleMatch() {
	fmt.Println(spec.Match("src/**", "src/a/b.py"), spec.Match("*.py", "src/b.py"))
	// Output: true false
}
