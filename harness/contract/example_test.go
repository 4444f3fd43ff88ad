package contract_test

import (
	"context"
	"fmt"
	"os"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// The text of a contract is checked without an engine and without files of this machine.
func ExampleRules_Examine() {
	tools, err := registry.Parse(configs.Tools(), "tools.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	profiles, err := policy.ParseProfiles(configs.Profiles(), "profiles.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	rules := contract.Rules{Registry: tools, Profiles: profiles}
	for _, v := range rules.Examine([]byte("tool_id: python\ninputs: {command: python3}\n")).Violations {
		fmt.Println(v)
	}
	// Output: IV-01: tool_id "python": is the name of a tool; its ID is TL-010
}

// A refusal and a failure are outcomes; an error means that the sandbox failed.
func ExampleHarness_Run() {
	run := func(ctx context.Context, box sandbox.Box, rules contract.Rules) error {
		document, err := os.ReadFile("contract.yaml")
		if err != nil {
			return err
		}
		h, err := contract.New(box, contract.Options{Rules: rules, Root: "."})
		if err != nil {
			return err
		}
		outcome, err := h.Run(ctx, contract.Job{Text: document})
		if err != nil {
			return err
		}
		fmt.Println(outcome.Success, outcome.Stdout)
		return outcome.Err()
	}
	_ = run
}
