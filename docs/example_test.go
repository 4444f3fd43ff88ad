package docs_test

import (
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/docs"
)

// The pages are those of this directory.
func Example() {
	page, err := docs.Pages.ReadFile("settings.md")
	title, _, _ := strings.Cut(string(page), "\n")
	fmt.Println(title, err)
	// Output: # Settings <nil>
}
