package egress_test

import (
	"fmt"

	"github.com/evalbox/evalbox/sandbox/egress"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A run without a network level has a nil Session, which may be used like any other.
func ExampleOpen() {
	warn := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	session, err := egress.Open(spec.Job{RunID: "r1"}, "", warn)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%q\n", session.Dir())
	session.Close()
	fmt.Println(session.Report())
	// Output:
	// ""
	// <nil>
}
