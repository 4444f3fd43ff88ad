package spec_test

import (
	"encoding/json"
	"fmt"

	"github.com/evalbox/evalbox/sandbox/spec"
)

func ExampleRequest() {
	text, err := json.Marshal(spec.Request{Script: "train.py", Mounts: []spec.Mount{{Source: "/srv/data", Target: "/host/data"}}})
	fmt.Println(string(text), err)
	// Output: {"schema":"evalbox/request/v1","script":"train.py","mounts":[{"source":"/srv/data","target":"/host/data"}]} <nil>
}

func ExampleLayout_Lookup() {
	layout, err := spec.NewLayout(spec.Request{
		Trees:  []spec.Tree{{Source: "/srv/code", Target: "/repo"}},
		Mounts: []spec.Mount{{Source: "/srv/data", Target: "/repo/data"}},
	})
	entry, rel, ok := layout.Lookup("/repo/data/a.csv")
	fmt.Println(entry.Role, entry.Source, rel, ok, err)
	// Output: mount /srv/data a.csv true <nil>
}
