package hostile_test

import (
	"fmt"
	"regexp"

	"github.com/evalbox/evalbox/sandbox/engine/enginetest/hostile"
)

// Every program ends in a known way, and its output shows whether the attack was carried out.
func ExamplePrograms() {
	for _, p := range hostile.Programs() {
		if _, err := regexp.Compile(p.Said); err != nil || p.Code == 0 && p.Signal == 0 {
			fmt.Println(p.Name, err)
		}
	}
	// Output:
}
