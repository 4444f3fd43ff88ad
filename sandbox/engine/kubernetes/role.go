package kubernetes

import (
	"fmt"
	"slices"
	"strings"
)

// A Permission is what an account may do with one resource in its namespace.
type Permission struct {
	// Group is that of the API, empty for the core one. Resource may have a subresource: pods/exec.
	Group, Resource string
	Verbs           []string
}

// Role returns the permissions that the engine needs in its namespace, and no more.
func Role() []Permission {
	return []Permission{
		{"batch", "jobs", []string{"create", "get", "list", "delete"}},
		{"", "pods", []string{"list", "watch", "deletecollection"}},
		// WebSockets begin with GET, and newer servers demand create for them as well.
		{"", "pods/exec", []string{"create", "get"}},
		{"", "events", []string{"list"}},
		{"networking.k8s.io", "networkpolicies", []string{"list", "create"}},
		// For kubernetes.gpu_device_class.
		{"resource.k8s.io", "resourceclaimtemplates", []string{"create"}},
	}
}

// RoleYAML returns [Role] as YAML for kubectl apply. The namespace may be empty: then kubectl
// decides. What the account lacks is marked with a comment; missing may be empty.
func RoleYAML(namespace string, missing []Permission) string {
	var b strings.Builder
	b.WriteString("# What sandbox needs in the namespace of its Jobs. A RoleBinding gives it to an account:\n" +
		"#   kubectl create rolebinding evalbox --role=evalbox --serviceaccount=NAMESPACE:NAME\n" +
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: evalbox\n")
	if namespace != "" {
		fmt.Fprintf(&b, "  namespace: %s\n", namespace)
	}
	b.WriteString("rules:\n")
	for _, p := range Role() {
		fmt.Fprintf(&b, "- apiGroups: [%q]\n  resources: [%q]\n  verbs:\n", p.Group, p.Resource)
		for _, verb := range p.Verbs {
			mark := ""
			if slices.ContainsFunc(missing, func(m Permission) bool {
				return m.Group == p.Group && m.Resource == p.Resource && slices.Contains(m.Verbs, verb)
			}) {
				mark = " # missing"
			}
			fmt.Fprintf(&b, "  - %s%s\n", verb, mark)
		}
	}
	return b.String()
}
