package policy_test

import (
	"fmt"
	"time"

	"github.com/evalbox/evalbox/policy"
)

// Limits that a request leaves zero are those of the policy; too much is refused.
func ExamplePolicy_Apply() {
	p := policy.Policy{
		Defaults: policy.Limits{Timeout: 10 * time.Minute},
		Max:      policy.Limits{Memory: 8 * policy.GiB},
	}
	limits, err := p.Apply(policy.Limits{Memory: 4 * policy.GiB})
	fmt.Println(limits.Timeout, limits.Memory, limits.Tmp, err)
	_, err = p.Apply(policy.Limits{Memory: 16 * policy.GiB})
	fmt.Println(err)
	// Output:
	// 10m0s 4GiB 1GiB <nil>
	// memory 16GiB: above the policy's maximum of 8GiB
}

func ExampleEgress_Rules() {
	egress := policy.Egress{Level: policy.API, Allow: []string{"*.example.org"}, Deny: []string{"www.example.org"}}
	rules, err := egress.Rules(nil, nil)
	if err != nil {
		panic(err)
	}
	for _, host := range []string{"api.example.org", "www.example.org", "example.net"} {
		verdict := rules.Host(host, 443)
		fmt.Println(host, verdict.Allowed, verdict.Rule)
	}
	// Output:
	// api.example.org true allowed by *.example.org
	// www.example.org false denied by www.example.org
	// example.net false no permitted host matches
}
