package normalize_test

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/normalize"
)

func ExampleNormalizer_Text() {
	n, err := normalize.New([]evidence.Rule{}, normalize.Context{Roots: []string{"/tmp/copy"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s\n", n.Text([]byte("1 passed")))
	// Output: 1 passed
}
