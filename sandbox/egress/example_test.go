package egress_test

import (
	"fmt"
	"log"

	"github.com/evalbox/evalbox/sandbox/egress"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A run without a network level has a nil Session, which may be used like any other.
func ExampleOpen() {
	session, err := egress.Open(spec.Job{RunID: "r1"}, "", log.Printf)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", session.Dir())
	session.Close()
	fmt.Println(session.Report())
	// Output:
	// ""
	// <nil>
}
