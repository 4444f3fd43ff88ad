package web_test

import (
	"fmt"

	"github.com/evalbox/evalbox/harness/contract/adapter/web"
)

func ExampleAddress() {
	fmt.Println(web.Address("https://api.example.com/v1/items"))
	fmt.Println(web.Address("http://[::1]:8080/"))
	// Output:
	// api.example.com 443 true
	// ::1 8080 true
}
