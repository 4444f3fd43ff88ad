package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/network"

	"github.com/evalbox/evalbox/policy"
)

// FindNetwork implements [engine.Networks]. It also refuses the host's network, under any
// name or ID.
func (e *adapter) FindNetwork(ctx context.Context, name string) error {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	found, err := e.api.NetworkInspect(ctx, name, network.InspectOptions{})
	if err == nil {
		return judgeNetwork(name, found.Driver)
	}
	if !errdefs.IsNotFound(err) {
		return fmt.Errorf("looking for network %q: %w", name, engineError(ctx, err))
	}
	all, err := e.api.NetworkList(ctx, network.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing networks: %w", engineError(ctx, err))
	}
	var names []string
	for _, n := range all {
		if judgeNetwork(n.Name, n.Driver) == nil {
			names = append(names, n.Name)
		}
	}
	return &policy.FieldError{Field: "network", Value: fmt.Sprintf("%q", name), Rule: "the engine does not have it; " + hasNetworks(names)}
}

// judgeNetwork refuses networks that are unsuitable for a sandbox.
func judgeNetwork(name, driver string) error {
	if driver == "host" || driver == "null" {
		return &policy.FieldError{Field: "network", Value: fmt.Sprintf("%q", name),
			Rule: fmt.Sprintf("is the engine's network of the driver %s; a sandbox has its own", driver)}
	}
	return nil
}

// namedNetworks is the maximum number of networks in a message.
const namedNetworks = 10

func hasNetworks(names []string) string {
	if len(names) == 0 {
		return "it has none that a program could use"
	}
	slices.Sort(names)
	if rest := len(names) - namedNetworks; rest > 0 {
		return fmt.Sprintf("it has %s and %d more", strings.Join(names[:namedNetworks], ", "), rest)
	}
	return "it has " + strings.Join(names, ", ")
}
