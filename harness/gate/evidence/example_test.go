package evidence_test

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

func ExampleCanonical() {
	text, err := evidence.Canonical(map[string]any{"b": 1, "a": "x"})
	fmt.Printf("%s%v\n", text, err)
	fmt.Println(evidence.IsSHA256(evidence.SHA256(text)))
	// Output:
	// {
	//   "a": "x",
	//   "b": 1
	// }
	// <nil>
	// true
}
