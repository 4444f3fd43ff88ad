package transform_test

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/contract/adapter/transform"
)

func ExampleCompileOutput() {
	out, problems := transform.CompileOutput([]transform.Step{{Type: transform.Parse, Spec: "json"}})
	if len(problems) > 0 {
		fmt.Println(problems)
		return
	}
	value, err := out.Apply(`{"hits": 3}`)
	fmt.Println(value, err)
	// Output: map[hits:3] <nil>
}
