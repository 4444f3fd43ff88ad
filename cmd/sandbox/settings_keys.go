package main

import (
	"strings"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// A key is one setting: its name in files, its flag, its type and its target.
type key struct {
	// name is the name in files; a dot stands for a level.
	name string
	// flag is the name of the flag, short its letter; empty for none.
	flag, short string
	// kind names the value in the help of the flag; "bool" needs no value.
	kind string
	// help is the flag's line of help.
	help string
	// trusted keys are not taken from ./sandbox.yaml, which may have come with
	// a folder of somebody else.
	trusted bool
	// limit keys fill the limits of a run.
	limit bool
	// list keys may be a list in a file; in text their parts are joined as in PATH.
	list bool
	// target is where a value of this key goes.
	target func(*settings) setter
}

const envPrefix = "SANDBOX_"

// The two keys that name the engine, of which there can be one.
const (
	keyContext = "context"
	keyHost    = "host"
)

// variable is the name of the environment variable of the key.
func (k key) variable() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_"))
}

// keys are all settings, in the order in which `sandbox config` shows them.
var keys = allKeys()

// keyNamed finds a key by its name in files.
func keyNamed(name string) (key, bool) {
	for _, k := range keys {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

func allKeys() []key {
	all := []key{
		{name: "image", flag: "image", kind: "name", help: "image: a name of the catalog, a reference or an ID",
			target: func(s *settings) setter { return textTo(&s.Image) }},
		{name: "runtime", flag: "runtime", kind: "name", help: "OCI runtime that the engine knows, such as runsc", trusted: true,
			target: func(s *settings) setter { return textTo(&s.Runtime) }},
		{name: "user", flag: "user", short: "u", kind: "uid:gid", help: "numeric user inside the container", trusted: true,
			target: func(s *settings) setter { return textTo(&s.User) }},
		{name: "network", flag: "network", kind: "name", help: "network of the engine (needs allow_network unless none)",
			target: func(s *settings) setter { return textTo(&s.Network) }},
		{name: "gpus", flag: "gpus", kind: "gpus", help: "GPUs: all, a number, or device IDs: 0,1, or device=0 for one",
			target: func(s *settings) setter { return gpusTo(&s.GPUs) }},
		{name: "gpu_driver", flag: "gpu-driver", kind: "name", help: "how the engine is asked for GPUs: auto, nvidia or cdi",
			target: func(s *settings) setter { return wordTo(&s.GPUDriver, "auto", spec.DriverNVIDIA, spec.DriverCDI) }},
		{name: "gpu_share", flag: "gpu-share", kind: "bool", help: "let other runs that share have the same GPUs", trusted: true,
			target: func(s *settings) setter { return boolTo(&s.GPUShare) }},
		{name: "gpu_wait", flag: "gpu-wait", kind: "duration", help: "wait so long for GPUs that are not free",
			target: func(s *settings) setter { return waitTo(&s.GPUWait) }},
	}
	all = append(all, key{name: "transfer", flag: "transfer", kind: "way",
		help: "how files reach the engine: bind, copy, or auto, which finds out",
		target: func(s *settings) setter {
			return wordTo(&s.Transfer, sandbox.TransferAuto, sandbox.TransferBind, sandbox.TransferCopy)
		}})
	for _, l := range limitKeys {
		all = append(all, key{
			name: l.name, flag: l.flag, short: l.short, kind: l.kind, help: l.help, limit: true,
			target: func(s *settings) setter { return orWord(l.zero, l.target(&s.Limits)) },
		})
	}
	for _, l := range egressKeys {
		all = append(all, key{name: l.name, target: func(s *settings) setter { return l.target(&s.EgressDefaults) }})
	}
	all = append(all,
		key{name: "allow_network", trusted: true, target: func(s *settings) setter { return boolTo(&s.AllowNetwork) }},
		key{name: "allow_root", trusted: true, target: func(s *settings) setter { return boolTo(&s.AllowRoot) }},
		key{name: "allow_egress", trusted: true, target: func(s *settings) setter { return levelTo(&s.AllowEgress) }},
		key{name: "allow_private_egress", trusted: true, target: func(s *settings) setter { return boolTo(&s.AllowPrivateEgress) }},
		key{name: "allow_unlocked", flag: "allow-unlocked", kind: "bool", help: "run an image that is not the locked one, with a warning", trusted: true,
			target: func(s *settings) setter { return boolTo(&s.AllowUnlocked) }},
		key{name: "allow_insecure_engine", trusted: true, target: func(s *settings) setter { return boolTo(&s.Engine.AllowInsecure) }},
	)
	for _, l := range limitKeys {
		all = append(all, key{
			name: "max." + l.name, trusted: true,
			target: func(s *settings) setter { return orWord("none", l.target(&s.Max)) },
		})
	}
	for _, l := range egressKeys {
		all = append(all, key{name: "max." + l.name, trusted: true,
			target: func(s *settings) setter { return orWord("none", l.target(&s.MaxEgress)) }})
	}
	return append(all,
		key{name: keyContext, flag: "context", kind: "name", help: "Docker context of the engine, see docker context ls", trusted: true,
			target: func(s *settings) setter { return textTo(&s.Engine.Context) }},
		key{name: keyHost, flag: "host", short: "H", kind: "address", help: "engine: unix://path, ssh://user@host or tcp://host:port", trusted: true,
			target: func(s *settings) setter { return textTo(&s.Engine.Host) }},
		key{name: "state_dir", flag: "state-dir", kind: "folder", help: "folder of the records of all runs", trusted: true,
			target: func(s *settings) setter { return textTo(&s.StateDir) }},
		key{name: "gpu_dir", trusted: true,
			target: func(s *settings) setter { return textTo(&s.GPUDir) }},
		key{name: "catalog", flag: "catalog", kind: "file", help: "image catalog instead of the shipped one", trusted: true,
			target: func(s *settings) setter { return textTo(&s.Catalog) }},
		key{name: "lock", flag: "lock", kind: "file", help: "image lock that runs hold to", trusted: true,
			target: func(s *settings) setter { return textTo(&s.Lock) }},
		key{name: "tool_registry", flag: "registry", kind: "file", help: "tools that contracts may name, instead of the shipped ones", trusted: true,
			target: func(s *settings) setter { return textTo(&s.ToolRegistry) }},
		key{name: "profiles", flag: "profiles", kind: "file", help: "limit profiles of contracts beside the shipped ones", trusted: true,
			target: func(s *settings) setter { return textTo(&s.Profiles) }},
		key{name: "strict", flag: "strict", kind: "bool", help: "refuse contracts with characters of a shell, or variables to strip", trusted: true,
			target: func(s *settings) setter { return boolTo(&s.Strict) }},
		key{name: "open_allowlist", trusted: true,
			target: func(s *settings) setter { return boolTo(&s.OpenAllowlist) }},
		key{name: "contract_dependencies", trusted: true, list: true,
			target: func(s *settings) setter { return foldersTo(&s.Dependencies) }},
		key{name: "json", flag: "json", kind: "bool", help: "print JSON on stdout, and nothing else there",
			target: func(s *settings) setter { return boolTo(&s.JSON) }},
		key{name: "quiet", flag: "quiet", short: "q", kind: "bool", help: "no live output and no summary",
			target: func(s *settings) setter { return boolTo(&s.Quiet) }},
		key{name: "raw", flag: "raw", kind: "bool", help: "let control sequences of the program reach the terminal", trusted: true,
			target: func(s *settings) setter { return boolTo(&s.Raw) }},
	)
}

// egressKeys are what limitKeys are, for what passes through the proxy of a run.
var egressKeys = []struct {
	name   string
	target func(*policy.EgressLimits) setter
}{
	{"egress_connections", func(l *policy.EgressLimits) setter { return countTo(&l.Connections) }},
	{"egress_requests", func(l *policy.EgressLimits) setter { return countTo(&l.Requests) }},
	{"egress_bytes", func(l *policy.EgressLimits) setter { return sizeTo(&l.Bytes) }},
	{"egress_time", func(l *policy.EgressLimits) setter { return durationTo(&l.ConnectionTime) }},
}

// limitKeys are the keys that exist twice: as the limit of a run and, below
// "max", as the ceiling of that limit.
var limitKeys = []struct {
	name, flag, short, kind, help string
	// zero is the word for the zero value of the limit of a run; without one
	// the limit must be more than zero.
	zero   string
	target func(*policy.Limits) setter
}{
	{name: "timeout", flag: "timeout", kind: "duration", help: "the program's wall-clock time, such as 90s or 2h",
		target: func(l *policy.Limits) setter { return durationTo(&l.Timeout) }},
	{name: "grace", flag: "grace", kind: "duration", help: "time between SIGTERM and SIGKILL",
		target: func(l *policy.Limits) setter { return durationTo(&l.Grace) }},
	{name: "memory", flag: "memory", short: "m", kind: "size", help: "memory of all processes, such as 512m or 8g",
		target: func(l *policy.Limits) setter { return sizeTo(&l.Memory) }},
	{name: "cpus", flag: "cpus", kind: "number", help: "processors, such as 0.5 or 4",
		target: func(l *policy.Limits) setter { return floatTo(&l.CPUs) }},
	{name: "pids_limit", flag: "pids-limit", kind: "number", help: "processes and threads", zero: "auto",
		target: func(l *policy.Limits) setter { return countTo(&l.PIDs) }},
	{name: "nofile", zero: "auto",
		target: func(l *policy.Limits) setter { return countTo(&l.NoFile) }},
	{name: "shm_size", flag: "shm-size", kind: "size", help: "size of /dev/shm", zero: "auto",
		target: func(l *policy.Limits) setter { return sizeTo(&l.Shm) }},
	{name: "tmp_size", flag: "tmp-size", kind: "size", help: "size of /tmp", zero: "auto",
		target: func(l *policy.Limits) setter { return sizeTo(&l.Tmp) }},
	{name: "scratch_size", flag: "scratch-size", kind: "size", help: "size of the working directory", zero: "auto",
		target: func(l *policy.Limits) setter { return sizeTo(&l.Scratch) }},
	{name: "disk", flag: "disk", kind: "size", help: "what the program may hold in ./final",
		target: func(l *policy.Limits) setter { return sizeTo(&l.Disk) }},
	{name: "output_limit", flag: "output-limit", kind: "size", help: "end a run that prints more than this", zero: "none",
		target: func(l *policy.Limits) setter { return sizeTo(&l.Output) }},
	{name: "stream_file",
		target: func(l *policy.Limits) setter { return sizeTo(&l.StreamFile) }},
	{name: "capture_stdout",
		target: func(l *policy.Limits) setter { return sizeTo(&l.CaptureStdout) }},
	{name: "capture_stderr",
		target: func(l *policy.Limits) setter { return sizeTo(&l.CaptureStderr) }},
	{name: "output_files",
		target: func(l *policy.Limits) setter { return countTo(&l.OutputFiles) }},
	{name: "output_depth",
		target: func(l *policy.Limits) setter { return countTo(&l.OutputDepth) }},
	{name: "output_file",
		target: func(l *policy.Limits) setter { return sizeTo(&l.OutputFile) }},
	{name: "output_total",
		target: func(l *policy.Limits) setter { return sizeTo(&l.OutputTotal) }},
}
