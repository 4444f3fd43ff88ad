package contract

import (
	"slices"
	"strings"
)

// Hints are what to try about violations, each once and in their order. root is the root of
// the contract; empty if it is not known.
func Hints(violations []Violation, root string) []string {
	var hints []string
	for _, v := range violations {
		if text := v.hint(root); text != "" && !slices.Contains(hints, text) {
			hints = append(hints, text)
		}
	}
	if len(hints) == 0 {
		hints = append(hints, "see the fields of a contract, with comments: sandbox contract new")
	}
	return hints
}

// hint is what to try about one violation; empty for no idea. The texts that it looks for are
// those of the rules of this package and of policy.
func (v Violation) hint(root string) string {
	switch {
	case v.Field == "approval" && v.Rule == ruleNoApproval:
		return "let somebody approve it: --approve NAME --reason TEXT, or --approval FILE of: sandbox contract approve"
	case v.Field == "approval" || strings.HasPrefix(v.Field, "approval."):
		return "an approval is for one execution of one contract: make another with: sandbox contract approve"
	case v.Field == "root":
		return "choose another folder with --root"
	case v.Field == "determinism.clock" && !strings.Contains(v.Rule, "libfaketime"):
		return "give a time such as 2030-01-31T12:00:00Z"
	case v.Field == "determinism.clock":
		return "leave the clock out, or choose an image that has libfaketime"
	}
	switch v.Code {
	case "IV-01":
		return "see the tools and their commands with: sandbox contract tools; a registry of your own is named with --registry"
	case "IV-02":
		return argumentsHint(v.Rule)
	case "IV-03", "CX-03":
		return pathsHint(v.Rule, root)
	case "IV-05":
		if strings.HasPrefix(v.Field, "inputs.input_files") {
			return "input files are relative to the working directory"
		}
	case "CX-04":
		return networkHint(v.Rule)
	case "CX-02", "CX-05":
		return limitHint(v)
	}
	return ""
}

func argumentsHint(rule string) string {
	switch {
	case strings.Contains(rule, "NUL"):
		return "no program can be given a NUL byte; pass it in a file or on stdin"
	case strings.Contains(rule, "at most"):
		return "pass long input as a file or on stdin"
	}
	return "without --strict arguments are passed on as they are: there is no shell"
}

func pathsHint(rule, root string) string {
	switch {
	case strings.Contains(rule, "contract_dependencies"):
		return "if it may be read, name it or a folder above it with --dependency or contract_dependencies in the user's configuration"
	case strings.Contains(rule, "level "):
		return "see what each level opens with: sandbox contract new"
	case root == "":
		return "paths are of this machine, relative to the root, which --root names"
	}
	return "paths are of this machine, relative to the root " + root + "; another is named with --root"
}

func networkHint(rule string) string {
	switch {
	case strings.Contains(rule, "allow_private_egress"):
		return "permit such addresses with SANDBOX_ALLOW_PRIVATE_EGRESS=true or allow_private_egress in the user's configuration"
	case strings.Contains(rule, "polic"):
		return "permit the level with SANDBOX_ALLOW_EGRESS or allow_egress in the user's configuration"
	}
	return ""
}

func limitHint(v Violation) string {
	switch {
	case v.Code == "CX-02" && strings.Contains(v.Rule, "machine"):
		return "ask for less, or name an engine that has more with --host or --context"
	case strings.Contains(v.Rule, "profile"):
		return "a profile with other limits is named with sandbox.profile; profiles of your own with --profiles"
	}
	return ""
}
