package docker_test

import (
	"context"
	"fmt"

	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// The engine that the docker command would use here.
func ExampleFromEnv() {
	engine, err := docker.FromEnv()
	if err != nil {
		panic(err)
	}
	defer engine.Close()
	info, err := engine.Info(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(info.OS, info.Host.CPUs, info.Missing)
}

// An engine of another machine. Connecting to it begins with the first call.
func ExampleConnect() {
	engine, err := docker.Connect(docker.Address{Host: "ssh://me@lab.example.com"})
	fmt.Println(engine != nil, err)
	_, err = docker.Connect(docker.Address{Host: "tcp://lab.example.com:2375"})
	fmt.Println(err)
	// Output:
	// true <nil>
	// container engine unavailable: tcp://lab.example.com:2375: would be reached without TLS, and anyone on the way could control its machine
}
