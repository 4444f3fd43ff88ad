package plan

import (
	"fmt"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// planSecrets checks the names of secrets, and returns them in their order. The plan has no
// values.
func planSecrets(req spec.Request) (names []string, errs []error) {
	seen := map[string]bool{}
	for _, secret := range req.Secrets {
		refuse := func(rule string) {
			errs = append(errs, &policy.FieldError{Field: "secret", Value: fmt.Sprintf("%q", secret.Name), Rule: rule})
		}
		for _, err := range policy.CheckEnv(map[string]string{secret.Name: ""}) {
			refuse(policy.RuleOf(err))
		}
		if _, plain := req.Env[secret.Name]; plain {
			refuse("is a variable of the environment as well")
		}
		if seen[secret.Name] {
			refuse("is given twice")
		}
		seen[secret.Name] = true
		names = append(names, secret.Name)
	}
	return names, errs
}
