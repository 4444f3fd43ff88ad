package packages_test

import (
	"fmt"

	"github.com/evalbox/evalbox/images/packages"
)

func ExampleCompare() {
	before, err := packages.Parse("deb libc6 2.36 amd64\npython numpy 1.24.2\n")
	if err != nil {
		panic(err)
	}
	after, err := packages.Parse("deb libc6 2.36 amd64\npython numpy 1.26.4\n")
	if err != nil {
		panic(err)
	}
	fmt.Println(packages.Compare(before, after).Lines())
	// Output: [~ python numpy 1.24.2 -> 1.26.4]
}
