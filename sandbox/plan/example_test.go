package plan_test

import (
	"errors"
	"fmt"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/plan"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func Example() {
	req := spec.Request{ID: "r1", Command: []string{"python3", "-c", "print(1)"}}
	layout, err := spec.NewLayout(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := plan.Plan(req, layout, policy.Policy{}, spec.Host{})
	fmt.Println(s.Class.Network, s.Class.ReadOnlyRoot, s.Class.User, err)

	req.Network = "bridge"
	_, err = plan.Plan(req, layout, policy.Policy{}, spec.Host{})
	var field *policy.FieldError
	fmt.Println(errors.As(err, &field), err)
	// Output:
	// none true leased <nil>
	// true network "bridge": the policy allows none
}
