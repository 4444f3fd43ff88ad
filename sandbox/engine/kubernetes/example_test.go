package kubernetes_test

import (
	"context"
	"fmt"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
)

// The cluster that kubectl would use here.
func ExampleConnect() {
	e, err := kubernetes.Connect(engine.Cluster{
		Namespace: "evalbox",
		Programs:  "registry.example/team/evalbox-init@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	})
	if err != nil {
		panic(err)
	}
	defer e.Close()
	info, err := e.Info(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(info.Name, info.Version, info.Host.Unenforced)
}
