package registry_test

import (
	"fmt"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract/registry"
)

func ExampleParse() {
	tools, err := registry.Parse(configs.Tools(), "tools.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	python, ok := tools.Tool("TL-010")
	fmt.Println(python.Name, python.Status, ok)
	fmt.Println(tools.Check([]string{"python3", "train.py"}))
	// Output:
	// python active true
	// <nil>
}
