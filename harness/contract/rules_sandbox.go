package contract

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/strict"

	"github.com/evalbox/evalbox/policy"
)

// Levels that need an approval, as in [Approval.Levels].
const (
	needElevated = "filesystem:" + string(policy.Elevated)
	needOpen     = "network:" + string(policy.Open)
)

func networkLevels() []policy.NetworkLevel {
	return []policy.NetworkLevel{policy.Offline, policy.Registry, policy.API, policy.Open}
}

// limits checks the limits against the profile (CX-02). Its bounds are inclusive, and
// what lies outside of them is refused, not moved (resolution 6).
func (k *checker) limits() {
	const code = "CX-02"
	name := k.c.Sandbox.Profile
	p, ok := k.rules.Profiles[name]
	if !ok {
		k.refuseText(code, "sandbox.profile", name, "is no profile; there are "+
			cmp.Or(strings.Join(slices.Sorted(maps.Keys(k.rules.Profiles)), ", "), "none"))
		return
	}
	s := k.c.Sandbox
	k.within(code, "sandbox.timeout_ms", s.TimeoutMS, p.TimeoutMS)
	k.within(code, "sandbox.memory_mb", s.MemoryMB, p.MemoryMB)
	k.within(code, "sandbox.cpu_cores", s.CPUCores, p.CPUCores)
	k.within(code, "sandbox.processes.max_children", s.Processes.MaxChildren, p.MaxChildren)
}

func (k *checker) within(code, field string, value *int64, r policy.Range) {
	if !r.Has(*value) {
		k.refuse(code, field, fmt.Sprint(*value), fmt.Sprintf("must be between %d and %d in profile %s", r.Min, r.Max, k.c.Sandbox.Profile))
	}
}

// filesystem checks the level of file access (CX-03), and what is opened beside it. A
// path that only an approved or a higher level may open is refused here; whether it lies
// below the root is looked at when it is resolved.
func (k *checker) filesystem() {
	const code = "CX-03"
	files := k.c.Sandbox.Filesystem
	level := policy.FilesystemLevel(files.Level)
	rank := slices.Index(policy.FilesystemLevels(), level)
	if rank < 0 {
		k.refuseText(code, "sandbox.filesystem.level", files.Level, "must be one of "+joined(policy.FilesystemLevels()))
		return
	}
	if level == policy.Elevated {
		k.needs = append(k.needs, needElevated)
	}
	work := k.c.Inputs.WorkingDirectory
	for _, list := range []struct {
		field string
		paths []string
		// open says whether the level has the path open already.
		open func(p string) bool
	}{
		{"read", files.Read, func(p string) bool {
			return level == policy.Standard && !path.IsAbs(p) || below(work, p)
		}},
		{"write", files.Write, func(p string) bool { return level == policy.Standard && below(work, p) }},
	} {
		for i, p := range list.paths {
			field := fmt.Sprintf("sandbox.filesystem.%s[%d]", list.field, i)
			switch {
			case path.Clean(p) == "/":
				k.refuseText(code, field, p, "would open the whole host")
			case rank < slices.Index(policy.FilesystemLevels(), policy.Extended) && !list.open(p):
				k.refuseText(code, field, p, fmt.Sprintf("is not open to %s at level %s; it takes level extended", list.field, level))
			}
		}
	}
	k.toolFiles(level, rank)
}

// below says whether a path is a folder or lies in it, by their texts.
func below(folder, p string) bool {
	folder, p = path.Clean(folder), path.Clean(p)
	return fsx.Within(p, folder) || folder == "." && !path.IsAbs(p)
}

// toolFiles holds the contract to the scope of its tool.
func (k *checker) toolFiles(level policy.FilesystemLevel, rank int) {
	const code, field = "CX-03", "sandbox.filesystem.level"
	if k.t == nil {
		return
	}
	scope := k.t.Scope
	if rank > slices.Index(policy.FilesystemLevels(), policy.FilesystemLevel(scope.Filesystem)) {
		k.refuseText(code, field, string(level), fmt.Sprintf("is above %s, the highest level of tool %s", scope.Filesystem, k.t.ID))
	} else if scope.DataAccess != dataWrite && level != policy.Minimal {
		k.refuseText(code, field, string(level), fmt.Sprintf("lets the program write, and tool %s has data access %s", k.t.ID, scope.DataAccess))
	}
	if scope.DataAccess == dataNone {
		for i, p := range k.c.Inputs.InputFiles {
			k.refuseText(code, fmt.Sprintf("inputs.input_files[%d]", i), p, fmt.Sprintf("is refused: tool %s has data access none", k.t.ID))
		}
	}
}

// network checks the level of network access (CX-04) and the lists of hosts.
func (k *checker) network() {
	const code = "CX-04"
	given, n := k.given.Sandbox.Network, k.c.Sandbox.Network
	if given.Level != "" && !slices.Contains(networkLevels(), policy.NetworkLevel(given.Level)) {
		k.refuseText(code, "sandbox.network.level", given.Level, "must be one of "+joined(networkLevels()))
		return
	}
	level := policy.NetworkLevel(n.Level)
	switch {
	case given.Enabled != nil && *given.Enabled && level == policy.Offline:
		k.refuse(code, "sandbox.network.enabled", "true", "contradicts the level offline")
	case level == policy.Offline && len(n.Allow) > 0:
		k.refuse(code, "sandbox.network.allow", "", "opens hosts, but the network is offline")
	case level == policy.Open:
		k.needs = append(k.needs, needOpen)
	}
	k.hosts("sandbox.network.allow", n.Allow)
	k.hosts("sandbox.network.deny", n.Deny)
	k.toolNetwork(level)
}

func (k *checker) hosts(field string, hosts []string) {
	if len(hosts) > maxList {
		k.refuse("CX-04", field, "", fmt.Sprintf("has %d hosts; at most %d", len(hosts), maxList))
	}
	for i, host := range hosts {
		if _, err := policy.ParseHostPattern(host); err != nil {
			k.refuseText("CX-04", fmt.Sprintf("%s[%d]", field, i), host, fieldRule(err))
		}
	}
}

// toolNetwork holds the contract to the scope of its tool.
func (k *checker) toolNetwork(level policy.NetworkLevel) {
	if k.t == nil {
		return
	}
	scope := k.t.Scope
	if slices.Index(networkLevels(), level) > slices.Index(networkLevels(), policy.NetworkLevel(scope.Network)) {
		k.refuseText("CX-04", "sandbox.network.level", string(level), fmt.Sprintf("is above %s, the highest level of tool %s", scope.Network, k.t.ID))
	}
	for i, host := range k.c.Sandbox.Network.Allow {
		if len(scope.Endpoints) > 0 && !slices.Contains(scope.Endpoints, host) {
			k.refuse("CX-04", fmt.Sprintf("sandbox.network.allow[%d]", i), strict.Quoted(host),
				fmt.Sprintf("is no endpoint of tool %s, which has %s", k.t.ID, strings.Join(scope.Endpoints, ", ")))
		}
	}
}
