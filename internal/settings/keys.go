package settings

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A key is one setting: its name in files, its flag, its type and its target.
type key struct {
	// name is the name in files; a dot stands for a level.
	name string
	// flag is the name of the flag if it is not that of the key, letter its short form.
	flag, letter string
	// kind names the value in the help of the flag; "bool" needs no value.
	kind string
	// help is the flag's line of help; a key without one has no flag.
	help string
	// trusted keys are not taken from ./sandbox.yaml, which may have come with
	// a directory of another person.
	trusted bool
	// separator joins the parts of a key that may be a list in a file; empty for one value.
	// Modules may be joined with commas as well.
	separator string
	// set stores a value; setDefault stores a shipped one, if it has a place of its own.
	set, setDefault setter
}

// variable is the name of the environment variable of the key.
func (k key) variable() string {
	return envPrefix + "_" + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_"))
}

// flagName is the name of the flag of a key that has one.
func (k key) flagName() string {
	return cmp.Or(k.flag, strings.ReplaceAll(k.name, "_", "-"))
}

// keys are all settings, in the order in which `sandbox config` shows them.
var keys = sync.OnceValue(func() []key { return keysOf(new(Settings)) })

// keyNamed finds a key by its name in files.
func keyNamed(name string) (key, bool) {
	i := slices.IndexFunc(keys(), func(k key) bool { return k.name == name })
	if i < 0 {
		return key{}, false
	}
	return keys()[i], true
}

func keyNames() []string {
	names := make([]string, len(keys()))
	for i, k := range keys() {
		names[i] = k.name
	}
	return names
}

// keysOf are all keys, with s as their target.
func keysOf(s *Settings) []key {
	all := []key{
		{name: "image", kind: "name", help: "image: a name of the catalog, a reference or an ID", set: to(&s.Image, readText)},
		{name: "runtime", kind: "name", help: "OCI runtime that the engine knows, such as runsc", trusted: true, set: to(&s.Runtime, readText)},
		{name: "user", letter: "u", kind: "uid:gid", help: "numeric user inside the container", trusted: true, set: to(&s.User, readText)},
		{name: "isolation", kind: "grade", help: "refuse a run that is less isolated: basic, separate, layered or own_kernel",
			set: to(&s.Isolation, readGrade)},
		{name: "network", kind: "name", help: "network of the engine (needs allow_network unless none)", set: to(&s.Network, readText)},
		{name: "gpus", kind: "gpus", help: "GPUs: all, a number, or device IDs: 0,1, or device=0 for one", set: to(&s.GPUs, readGPUs)},
		{name: "gpu_driver", kind: "name", help: "how the engine is asked for GPUs: auto, nvidia or cdi",
			set: to(&s.GPUDriver, readWord("auto", spec.DriverNVIDIA, spec.DriverCDI))},
		{name: "gpu_share", kind: "bool", help: "let other runs that share have the same GPUs", trusted: true, set: to(&s.GPUShare, readBool)},
		{name: "gpu_wait", kind: "duration", help: "wait so long for GPUs that are not free", set: to(&s.GPUWait, readWait)},
		{name: "transfer", kind: "way", help: "how files reach the engine: bind, copy, or auto, which finds out",
			set: to(&s.Transfer, readWord(spec.TransferAuto, spec.TransferBind, spec.TransferCopy))},
	}
	all = append(all, key{name: "preload", kind: "modules", help: "Python modules that are imported before the program starts: numpy,pandas", separator: pathSeparator,
		set: to(&s.Preload, readModules)})
	all = append(all, key{name: "soft_signal", kind: "signal", help: "signal of --soft-timeout: SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2",
		set: to(&s.SoftSignal, readWord(slices.Sorted(maps.Keys(spec.SoftSignals))...))})
	all = append(all, key{name: "stop_when", kind: "rules", help: "end a run early: 'metric.loss is nan; no output for 10m'; see 'sandbox help stop-rules'", separator: ruleSeparator,
		set: to(&s.StopWhen, readRules)})
	for _, l := range policy.LimitTable() {
		kind, set := limitTo(l.Field(&s.Limits), l.Zero)
		_, setDefault := limitTo(l.Field(&s.Defaults), l.Zero)
		all = append(all, key{name: limitKey(l.Name), letter: l.Letter, kind: kind, help: l.Help, set: set, setDefault: setDefault})
	}
	for _, l := range policy.EgressTable() {
		_, set := limitTo(l.Field(&s.EgressDefaults), l.Zero)
		all = append(all, key{name: limitKey(l.Name), set: set})
	}
	all = append(all,
		key{name: "orphan_timeout", trusted: true, set: orWord("none", to(&s.OrphanTimeout, readTime))},
		key{name: "allow_network", trusted: true, set: to(&s.AllowNetwork, readBool)},
		key{name: "min_isolation", trusted: true, set: to(&s.MinIsolation, readGrade)},
		key{name: "allow_root", trusted: true, set: to(&s.AllowRoot, readBool)},
		key{name: "allow_unenforced", trusted: true, set: to(&s.AllowUnenforced, readBool)},
		key{name: "allow_egress", trusted: true, set: to(&s.AllowEgress, readLevel)},
		key{name: "allow_private_egress", trusted: true, set: to(&s.AllowPrivateEgress, readBool)},
		key{name: "allow_unlocked", kind: "bool", help: "run an image that is not the locked one, with a warning", trusted: true,
			set: to(&s.AllowUnlocked, readBool)},
		key{name: "allow_insecure_engine", trusted: true, set: to(&s.Engine.AllowInsecure, readBool)},
	)
	all = append(all, key{name: "disk_bound", kind: "how", help: "how the disk limit is enforced: auto measures the files, hard makes a file system of that size and takes root",
		trusted: true, set: to(&s.DiskBound, readWord("auto", HardDisk))})
	for _, l := range policy.LimitTable() {
		_, set := limitTo(l.Field(&s.Max), "none")
		all = append(all, key{name: "max." + limitKey(l.Name), trusted: true, set: set})
	}
	for _, l := range policy.EgressTable() {
		_, set := limitTo(l.Field(&s.MaxEgress), "none")
		all = append(all, key{name: "max." + limitKey(l.Name), trusted: true, set: set})
	}
	all = append(all, key{name: "engine", kind: "kind", help: "docker, or kubernetes: the cluster of the settings kubernetes.*", trusted: true,
		set: to(&s.EngineKind, readWord(Docker, Kubernetes))})
	for _, k := range clusterKeys(&s.Cluster, &s.ClusterImages) {
		k.name, k.trusted = "kubernetes."+k.name, true
		all = append(all, k)
	}
	return append(all,
		key{name: "context", kind: "name", help: "Docker context of the engine, see docker context ls", trusted: true,
			set: to(&s.Engine.Context, readText)},
		key{name: "host", letter: "H", kind: "address", help: "engine: unix://path, ssh://user@host or tcp://host:port", trusted: true,
			set: to(&s.Engine.Host, readText)},
		key{name: "state_dir", kind: "directory", help: "directory of the records of all runs", trusted: true, set: to(&s.StateDir, readText)},
		key{name: "gpu_dir", trusted: true, set: to(&s.GPUDir, readText)},
		key{name: "uid_range", trusted: true, set: to(&s.UIDRange, readUIDs)},
		key{name: "pool.size", flag: "size", kind: "number", help: "most containers that wait for runs at once", trusted: true,
			set: orWord("none", to(&s.PoolSize, readCount))},
		key{name: "pool.memory", flag: "pool-memory", kind: "size", help: "most memory that they use together", trusted: true,
			set: to(&s.PoolMemory, ReadSize)},
		key{name: "pool.idle", flag: "idle", kind: "duration", help: "end after so long without a run", trusted: true, set: to(&s.PoolIdle, readTime)},
		key{name: "catalog", kind: "file", help: "image catalog instead of the shipped one", trusted: true, set: to(&s.CatalogFile, readText)},
		key{name: "lock", kind: "file", help: "image lock that runs hold to", trusted: true, set: to(&s.LockFile, readText)},
		key{name: "tool_registry", flag: "registry", kind: "file", help: "tools that contracts may name, instead of the shipped ones", trusted: true,
			set: to(&s.ToolRegistry, readText)},
		key{name: "adapters", kind: "directory", help: "directory of adapters beside the shipped ones", trusted: true, set: to(&s.Adapters, readText)},
		key{name: "profiles", kind: "file", help: "limit profiles of contracts beside the shipped ones", trusted: true, set: to(&s.Profiles, readText)},
		key{name: "strict", kind: "bool", help: "refuse contracts with characters of a shell, or variables to strip", trusted: true,
			set: to(&s.Strict, readBool)},
		key{name: "open_allowlist", trusted: true, set: to(&s.OpenAllowlist, readBool)},
		key{name: "contract_dependencies", trusted: true, separator: pathSeparator, set: to(&s.Dependencies, readDirectories)},
		key{name: "json", kind: "bool", help: "print JSON on stdout, and nothing else there", set: to(&s.JSON, readBool)},
		key{name: "quiet", letter: "q", kind: "bool", help: "no progress, hints or summary; the output of programs stays", set: to(&s.Quiet, readBool)},
		key{name: "raw", kind: "bool", help: "let control sequences of the program reach the terminal", trusted: true, set: to(&s.Raw, readBool)},
	)
}

// clusterKeys are the keys below kubernetes, with c and images as their targets.
func clusterKeys(c *engine.Cluster, images *map[string]string) []key {
	return []key{
		{name: "kubeconfig", set: to(&c.Kubeconfig, readText)},
		{name: "context", set: to(&c.Context, readText)},
		{name: "namespace", set: to(&c.Namespace, readText)},
		{name: "programs", set: to(&c.Programs, readDigested)},
		{name: "images", separator: ",", set: to(images, readImages)},
		{name: "node_selector", separator: ",", set: to(&c.NodeSelector, readPairs)},
		{name: "tolerations", separator: ",", set: to(&c.Tolerations, readNames)},
		{name: "priority_class", set: to(&c.PriorityClass, readText)},
		{name: "pull_secrets", separator: ",", set: to(&c.PullSecrets, readNames)},
		{name: "queue", set: to(&c.Queue, readText)},
		{name: "gpu_resource", set: to(&c.GPUResource, readText)},
		{name: "gpu_device_class", set: to(&c.GPUDeviceClass, readText)},
		{name: "seccomp", set: to(&c.Seccomp, readText)},
		{name: "cpu_share", set: to(&c.CPUShare, readNumber)},
		{name: "allow_open_network", set: to(&c.AllowOpenNetwork, readBool)},
		{name: "schedule_timeout", flag: "schedule-timeout", kind: "duration", help: "how long a pod of a cluster may wait to start", set: to(&c.ScheduleTimeout, readTime)},
	}
}

// limitKey is the key of a limit.
func limitKey(name string) string { return strings.ReplaceAll(name, "-", "_") }
