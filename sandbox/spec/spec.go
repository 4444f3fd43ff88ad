// Package spec defines a request, its mount table and its plan as data: everything that
// an engine needs to carry out a run, the paths inside a container, and the labels that
// identify containers. It makes no decisions.
package spec

import (
	"cmp"
	_ "embed" // for the seccomp profiles
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/evalbox/evalbox/policy"
)

const (
	// Terminals is the number of pseudo-terminals that a container may have open.
	Terminals = 32
	// TerminalsDir is the directory of the pseudo-terminals of a container.
	TerminalsDir = "/dev/pts"
)

// SchemaV1 names the wire form of [Spec].
const SchemaV1 = "evalbox/spec/v1"

// Paths inside the container.
const (
	WorkDir  = "/work"
	InputDir = "/work/input"
	FinalDir = "/work/final"
	TmpDir   = "/tmp"
	// RepoDir and HostDir are where further mounts may lie. Nothing of an image is
	// there, so that a mount cannot take the place of a program or of a file that the
	// container's start depends on.
	RepoDir = "/repo"
	HostDir = "/host"
)

// Spec is the full plan of a run: everything that an engine needs to carry it out. It has
// two parts. The [Class] is fixed when a container is created, and all runs that could
// use the same prepared container share it. The [Job] is the one program.
type Spec struct {
	Schema string `json:"schema"`
	Class  Class  `json:"class"`
	Job    Job    `json:"job"`
}

// Class is the part of a plan that is fixed when a container is created. Two requests share
// a class, and so could run in one another's prepared containers, if they agree on
//   - the image (its ID, not the name that found it), runtime, user and network,
//   - processors, memory, processes, open files and other ulimits, and the sizes of the
//     tmpfs and of shared memory,
//   - the GPUs that the container gets,
//   - the paths in the container at which something is mounted, hidden or monitored, and
//     with that the file name of the script, which the program sees, and whether it is
//     observed or has a proxy,
//   - the working directory, and whether files are mounted or copied,
//   - with Preload: the modules, the interpreter with its flags, the environment without the
//     values of secrets, and whether the program reads stdin and may start processes.
//
// Nothing else counts. Host paths, the name of the container and its labels come with the
// call that prepares it; the program, its arguments and environment, its time, disk and
// output limits come with the [Job].
type Class struct {
	Image   Image  `json:"image"`
	Runtime string `json:"runtime"`
	User    string `json:"user"`
	// HostUser is the user that User is on the caller's machine, if a user namespace of the
	// engine makes it another one.
	HostUser        string   `json:"host_user,omitzero"`
	WorkDir         string   `json:"work_dir"`
	Network         string   `json:"network"`
	ReadOnlyRoot    bool     `json:"read_only_root"`
	NoNewPrivileges bool     `json:"no_new_privileges"`
	CapDrop         []string `json:"cap_drop"`
	Seccomp         Seccomp  `json:"seccomp"`
	IPC             string   `json:"ipc"`
	Cgroup          Cgroup   `json:"cgroup"`
	Ulimits         []Ulimit `json:"ulimits"`
	Tmpfs           []Tmpfs  `json:"tmpfs"`
	Binds           []Bind   `json:"binds"`
	// Masks are paths that look empty in the container.
	Masks []Mask     `json:"masks"`
	Env   []string   `json:"env"`
	Log   Log        `json:"log"`
	GPUs  GPURequest `json:"gpus"`
	// Transfer is [TransferBind] or [TransferCopy]: the host paths of the binds are the
	// caller's own, or those of a staging volume.
	Transfer string `json:"transfer"`
	// Unenforced are limits of this class that its engine cannot enforce.
	Unenforced []string `json:"unenforced,omitempty"`
	// Preload describes the interpreter that waits for the program; nil if none was asked for.
	Preload *Preload `json:"preload,omitempty"`
}

// Preload is a Python that has imported modules before the job arrives, and becomes the
// program. It fits a job whose command begins with Interpreter, and whose environment is Env,
// apart from the values of secrets and the [DeadlineEnv].
type Preload struct {
	// Modules are imported in this order.
	Modules []string `json:"modules"`
	// Interpreter is the beginning of the command: the interpreter and its flags.
	Interpreter []string `json:"interpreter"`
	Env         []string `json:"env"`
	Stdin       bool     `json:"stdin,omitempty"`
	NoFork      bool     `json:"no_fork,omitempty"`
	// Unfit says why no interpreter can wait for the program of the request; empty if one
	// can. The program then starts without one.
	Unfit string `json:"unfit,omitempty"`
}

// Fits reports whether an interpreter waits. Nil does not.
func (p *Preload) Fits() bool { return p != nil && p.Unfit == "" }

// UserOnHost is the user that the program's files have on the caller's machine.
func (c Class) UserOnHost() string { return cmp.Or(c.HostUser, c.User) }

// Ways to make the files of a run available to the engine.
const (
	// TransferAuto detects whether the engine shares the controller's file system.
	TransferAuto = "auto"
	// TransferBind mounts the directories themselves.
	TransferBind = "bind"
	// TransferCopy copies the program and its input to the engine before the run, and
	// the outputs back afterwards.
	TransferCopy = "copy"
)

// Image is the image of a class. ID is empty in a plan and filled in once the image is
// resolved; a container is only ever created from an ID.
type Image struct {
	Reference string `json:"reference"`
	ID        string `json:"id"`
	Digest    string `json:"digest"`
	Platform  string `json:"platform"`
	Locked    bool   `json:"locked"`
}

// Seccomp names the profile that is sent with the create request, or, without a hash, one that the
// engine has.
type Seccomp struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// The seccomp profiles are files because github.com/moby/profiles/seccomp only builds on
// Linux, and this package must also build elsewhere. A test compares them with that module.
//
//go:generate go test . -run TestSeccomp -update

// SeccompProfile is moby's current allow-list, as that module builds it, for the system calls of the
// machine's own architecture, and without the socket options that bind a socket to a device.
//
//go:embed seccomp.json
var SeccompProfile string

// SeccompMonitor is [SeccompProfile] without the rule of CAP_DAC_READ_SEARCH, for a
// container that has this capability to read every file: the rule would also permit
// opening files of the host by handle.
//
//go:embed seccomp_monitor.json
var SeccompMonitor string

// The origin of the profile, and the hash of its text. A test compares both.
const (
	seccompName = "moby/profiles v0.2.3+evalbox.3"
	seccompHash = "b0e7fe852c65706e181cef21b1afc68a0345557c1c7aee39dd76b5ea10fc6a2d"
)

// DefaultSeccomp names the profile of every class.
func DefaultSeccomp() Seccomp { return Seccomp{Name: seccompName, SHA256: seccompHash} }

// Cgroup holds the limits that the kernel enforces for the whole container.
type Cgroup struct {
	Version     int   `json:"version"`
	MemoryBytes int64 `json:"memory_bytes"`
	SwapBytes   int64 `json:"swap_bytes"`
	NanoCPUs    int64 `json:"nano_cpus"`
	PIDs        int64 `json:"pids"`
	ShmBytes    int64 `json:"shm_bytes"`
}

// Tmpfs is a writable, bounded file system in memory, which is discarded with the
// container.
type Tmpfs struct {
	Target    string `json:"target"`
	SizeBytes int64  `json:"size_bytes"`
	Inodes    int64  `json:"inodes"`
}

// Bind is the shape of a bind mount: its role, not its host path.
type Bind struct {
	Role     string `json:"role"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
	// Claim is the source, if it is a volume of the cluster.
	Claim *Claim `json:"claim,omitzero"`
}

// Roles of bind mounts. The roles of mounts and trees end in a dash and their number in
// the [Job]; see [NumberedRole].
const (
	RoleInput   = "input"
	RoleFinal   = "final"
	RoleProgram = "program"
	RoleMount   = "mount"
	RoleTree    = "tree"
	// RoleEmpty is the role of the empty file that hides files.
	RoleEmpty = "empty"
	// RolePasswd and RoleGroup are the roles of [AccountFiles].
	RolePasswd = "passwd"
	RoleGroup  = "group"
)

// NumberedRole is the role of the mount, tree or monitored path with this number.
func NumberedRole(role string, i int) string { return fmt.Sprintf("%s-%d", role, i) }

// Mask hides a file or directory of a mount under an empty, read-only one.
type Mask struct {
	Target string `json:"target"`
	Dir    bool   `json:"folder"`
	// Role, if the path is watched, is the role of the bind that is mounted there
	// instead.
	Role string `json:"role,omitempty"`
}

// Text is the mask in the form of a request: the path of a directory ends with a slash.
func (m Mask) Text() string {
	if m.Dir {
		return m.Target + "/"
	}
	return m.Target
}

// Log is the engine's own bounded copy of the output.
type Log struct {
	Driver  string            `json:"driver"`
	Options map[string]string `json:"options"`
}

// BoundedLog is the engine's own copy of the output, limited to 100 MiB. It is all that
// remains of the output if the controller dies.
func BoundedLog() Log {
	return Log{Driver: "local", Options: map[string]string{"max-size": "20m", "max-file": "5", "compress": "false"}}
}

// Job is the program of one run.
type Job struct {
	RunID   string            `json:"run_id"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
	Command []string          `json:"command"`
	Env     []string          `json:"env"`
	// Secrets are the names of the variables whose values only [Job.ProgramEnv] has.
	Secrets []string `json:"secrets,omitempty"`
	secrets func() []string
	// Script, Input and Final are host paths. The empty string means none, and for Final that
	// the outputs stay in the record. ScriptFrom is [Request].ScriptFrom.
	Script     string `json:"script"`
	ScriptFrom string `json:"script_from,omitzero"`
	Input      string `json:"input"`
	Final      string `json:"final"`
	// Mounts and Trees are the sources of the binds with those roles, in the same order.
	Mounts []HostMount `json:"mounts"`
	Trees  []JobTree   `json:"trees"`
	// Aliases are symbolic links by their absolute paths, each after its directory's.
	Aliases []Alias `json:"aliases,omitempty"`
	Stdin   bool    `json:"stdin"`
	// NoFork prevents the program from starting processes.
	NoFork bool `json:"no_fork,omitempty"`
	Keep   bool `json:"keep"`
	// Egress says what the program may reach through a proxy; nil means nothing.
	Egress *Egress `json:"egress,omitempty"`
	// Observe says what is observed; nil means nothing.
	Observe *Observation `json:"observe,omitempty"`

	TimeoutSeconds float64 `json:"timeout_seconds"`
	GraceSeconds   float64 `json:"grace_seconds"`
	// SoftTimeoutSeconds, unless 0, is the time after which the main process gets
	// SoftSignal, once, as a request to finish. It is less than TimeoutSeconds.
	SoftTimeoutSeconds float64 `json:"soft_timeout_seconds,omitzero"`
	// SoftSignal is a key of [SoftSignals].
	SoftSignal string `json:"soft_signal,omitzero"`
	// OrphanLimitSeconds, unless 0, bounds the time that remains when the controller has
	// disconnected.
	OrphanLimitSeconds float64 `json:"orphan_limit_seconds,omitzero"`
	// StopWhen are the rules that end the run early; see stop.Parse.
	StopWhen []string `json:"stop_when,omitempty"`
	// NoDeadlineEnv leaves [DeadlineEnv] out of the program's environment. Otherwise
	// the container's init sets it when the program starts, if there is a time limit.
	NoDeadlineEnv bool `json:"no_deadline_env,omitzero"`

	// FileSize bounds the size of every file that the program writes, wherever it is: the disk
	// limit, or a lower fsize that the request asked for. Nil means no bound.
	FileSize *FileSize `json:"file_size,omitempty"`
	// DiskBound is how the kernel enforces DiskBytes: [DiskLoop], or [DiskFileSize], which is no
	// more than FileSize.
	DiskBound          string `json:"disk_bound"`
	DiskBytes          int64  `json:"disk_bytes"`
	OutputLimitBytes   int64  `json:"output_limit_bytes"`
	StreamFileBytes    int64  `json:"stream_file_bytes"`
	CaptureStdoutBytes int64  `json:"capture_stdout_bytes"`
	CaptureStderrBytes int64  `json:"capture_stderr_bytes"`
	OutputFiles        int    `json:"output_files"`
	OutputDepth        int    `json:"output_depth"`
	OutputFileBytes    int64  `json:"output_file_bytes"`
	OutputTotalBytes   int64  `json:"output_total_bytes"`
}

// Sources are the host paths of the files that the program's container shows, besides the script.
func (j Job) Sources() []string {
	sources := []string{j.Input, j.Final}
	for _, m := range j.Mounts {
		sources = append(sources, m.Source)
	}
	for _, tree := range j.Trees {
		sources = append(sources, tree.Source)
	}
	return slices.DeleteFunc(sources, func(source string) bool { return source == "" })
}

// Ways to enforce a disk limit; see result.DiskBound.
const (
	DiskLoop     = "loop"
	DiskFileSize = "rlimit"
)

// FileSize is RLIMIT_FSIZE of setrlimit(2), in bytes. A program may raise its limit from Soft up to
// Hard.
type FileSize struct {
	Soft int64 `json:"soft"`
	Hard int64 `json:"hard"`
}

// DeadlineEnv is [policy.DeadlineEnv].
const DeadlineEnv = policy.DeadlineEnv

// SoftSignals are the signals that can ask a program to finish, with Linux's numbers.
var SoftSignals = map[string]syscall.Signal{"SIGHUP": 1, "SIGINT": 2, "SIGUSR1": 10, "SIGUSR2": 12, "SIGTERM": 15}

// HostMount is a file or directory of the host that is mounted read-only.
type HostMount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// JobTree is a directory of the host that the program gets a copy of. An empty source
// means an empty directory.
type JobTree struct {
	Source string `json:"source"`
	Target string `json:"target"`
	// Exclude and Deny list paths below the source that are not copied. A denied file is
	// not copied under another name either, and is never written.
	Exclude []string `json:"exclude"`
	Deny    []string `json:"deny"`
}

// Egress says what a run may reach through its proxy. It is the wire form of a
// [policy.Egress] with all of its values.
type Egress struct {
	Level string   `json:"level"`
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
	// Resolve maps names that are not looked up to their addresses.
	Resolve               map[string][]netip.Addr `json:"resolve"`
	Connections           int                     `json:"connections"`
	Requests              int                     `json:"requests"`
	Bytes                 int64                   `json:"bytes"`
	ConnectionTimeSeconds float64                 `json:"connection_time_seconds"`
}

const (
	// EgressDir is the directory of the proxy's socket in the container.
	EgressDir = "/run/evalbox"
	// EgressSocket is the file name of that socket.
	EgressSocket = "proxy.sock"
	// EgressPort is the port of the proxy on the program's own loopback address.
	EgressPort = 3128
	// RoleEgress is the role of the mount at [EgressDir].
	RoleEgress = "egress"
)

// MergeEnv merges environments into sorted NAME=value pairs. Later values replace earlier
// ones.
func MergeEnv(envs ...[]string) []string {
	merged := map[string]string{}
	for _, env := range envs {
		for _, pair := range env {
			name, _, _ := strings.Cut(pair, "=")
			merged[name] = pair
		}
	}
	return slices.Sorted(maps.Values(merged))
}

// SortedEnv renders an environment as sorted NAME=value pairs.
func SortedEnv(env map[string]string) []string {
	pairs := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		pairs = append(pairs, name+"="+env[name])
	}
	return pairs
}

// Ulimit is one resource limit, as in setrlimit(2): nofile, nproc, fsize, ….
type Ulimit struct {
	Name string `json:"name"`
	Soft int64  `json:"soft"`
	Hard int64  `json:"hard"`
}

// DedicatedUser is the numeric user that programs of a root caller run as. Such a high
// number is usually not an account of the host, whereas uid 1000 is a person on many
// machines.
const DedicatedUser = "64646:64646"

// LeasedUser is the user of a plan whose run leases a user ID of its own before its
// container exists. The run's spec has the leased one in its place.
const LeasedUser = "leased"

// DedicatedID is the user ID and group ID of [DedicatedUser].
const DedicatedID = 64646
