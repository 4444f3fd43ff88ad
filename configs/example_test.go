package configs_test

import (
	"bytes"
	"fmt"
	"io/fs"

	"github.com/evalbox/evalbox/configs"
)

func Example() {
	fmt.Println(bytes.HasPrefix(configs.Tools(), []byte("#")), len(configs.Images()) > 0)
	adapters, err := fs.Glob(configs.Adapters(), "*.yaml")
	fmt.Println(len(adapters) > 0, err)
	// Output:
	// true true
	// true <nil>
}
