package driver_test

import (
	"encoding/json"
	"fmt"

	"github.com/evalbox/evalbox/harness/contract/adapter/driver"
)

func ExampleNew() {
	program, err := driver.New(driver.Call{Language: driver.Python, Package: "math", Function: "sqrt", Parameters: map[string]any{"x": json.Number("2")}})
	fmt.Println(len(program.Command) > 0, err)
	// Output: true <nil>
}
