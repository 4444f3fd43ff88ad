package adapter_test

import (
	"fmt"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract/adapter"
)

func ExampleOpen() {
	adapters, err := adapter.Open("", configs.Adapters(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := adapters.Resolve("ADP-001", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(found.ID, found.Name, found.Type, found.ToolID)
	// Output: ADP-001 ripgrep-search cli TL-003
}
