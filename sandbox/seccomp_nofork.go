package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

const (
	// newNamespaces are the CLONE_NEW… flags that the profile forbids, and
	// cloneThread is CLONE_THREAD (clone(2)): the kernel has threads without a new
	// process, and no new process with that flag.
	newNamespaces = 2114060288
	cloneThread   = 0x10000
)

// withoutFork is a seccomp profile that permits threads and no processes: fork and
// vfork are refused (EPERM), and so is clone without CLONE_THREAD. clone3, whose
// flags a filter cannot see, is not there (ENOSYS), as in Docker's own profile: C
// libraries then use clone.
func withoutFork(profile string) (string, error) {
	var all map[string]json.RawMessage
	var rules []map[string]json.RawMessage
	err := json.Unmarshal([]byte(profile), &all)
	if err == nil {
		err = json.Unmarshal(all["syscalls"], &rules)
	}
	if err != nil {
		return "", fmt.Errorf("reading the seccomp profile: %w", err)
	}
	var kept []map[string]json.RawMessage
	threads, unseen := 0, 0
	for _, rule := range rules {
		var names []string
		var action string
		if err := errors.Join(json.Unmarshal(rule["names"], &names), json.Unmarshal(rule["action"], &action)); err != nil {
			return "", fmt.Errorf("reading the seccomp profile: %w", err)
		}
		switch {
		case action == "SCMP_ACT_ERRNO" && slices.Equal(names, []string{"clone3"}):
			unseen++
		case action != "SCMP_ACT_ALLOW":
		case slices.Equal(names, []string{"clone"}):
			if rule["args"], err = onlyThreads(rule["args"]); err != nil {
				return "", err
			}
			threads++
		default:
			names = slices.DeleteFunc(names, func(name string) bool {
				return slices.Contains([]string{"fork", "vfork", "clone", "clone3"}, name)
			})
			if rule["names"], err = json.Marshal(names); err != nil {
				return "", err
			}
			if len(names) == 0 {
				continue
			}
		}
		kept = append(kept, rule)
	}
	if threads != 2 || unseen != 1 {
		return "", fmt.Errorf("reading the seccomp profile: %d rules of clone and %d of clone3, where 2 and 1 were expected", threads, unseen)
	}
	if all["syscalls"], err = json.Marshal(kept); err != nil {
		return "", fmt.Errorf("writing the seccomp profile: %w", err)
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// onlyThreads makes the condition of a clone rule one of threads: none of the flags
// of namespaces, and CLONE_THREAD.
func onlyThreads(text json.RawMessage) (json.RawMessage, error) {
	var args []struct {
		Index    uint   `json:"index"`
		Value    uint64 `json:"value"`
		ValueTwo uint64 `json:"valueTwo,omitempty"`
		Op       string `json:"op"`
	}
	if err := json.Unmarshal(text, &args); err != nil {
		return nil, fmt.Errorf("reading the seccomp profile: %w", err)
	}
	if len(args) != 1 || args[0].Value != newNamespaces || args[0].ValueTwo != 0 || args[0].Op != "SCMP_CMP_MASKED_EQ" {
		return nil, fmt.Errorf("reading the seccomp profile: the rule of clone is not the one that was expected: %s", text)
	}
	args[0].Value, args[0].ValueTwo = newNamespaces|cloneThread, cloneThread
	return json.Marshal(args)
}
