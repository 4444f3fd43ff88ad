// Package spec is the plan of a run as data, and its vocabulary: what an engine
// needs to carry a run out, the paths inside a container, and the labels by which
// containers are found again. It decides nothing.
package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/evalbox/evalbox/internal/owner"
)

// SchemaV1 names the wire form of [Spec].
const SchemaV1 = "evalbox/spec/v1"

// Paths inside the container.
const (
	WorkDir  = "/work"
	InputDir = "/work/input"
	FinalDir = "/work/final"
	TmpDir   = "/tmp"
)

// namespace begins the names of everything that an engine has of ours.
const namespace = "evalbox"

// HostName is the name of every container.
const HostName = "sandbox"

// Labels that every container of ours carries. They are the only database that
// survives a controller.
const (
	LabelManaged  = owner.LabelManaged
	LabelRun      = "org.evalbox.run"
	LabelName     = "org.evalbox.name"
	LabelOwner    = owner.LabelOwner
	LabelDeadline = owner.LabelDeadline
	LabelKeep     = "org.evalbox.keep"
	LabelSpec     = "org.evalbox.spec"
	LabelState    = "org.evalbox.state-dir"
)

// Spec is the full plan of a run: everything that an engine needs to carry it
// out. It has two parts. The [Class] is fixed when a container is created and is
// shared by all runs that could use the same prepared container; the [Job] is
// this one program.
type Spec struct {
	Schema string `json:"schema"`
	Class  Class  `json:"class"`
	Job    Job    `json:"job"`
}

// Class is what is fixed when a container is created.
type Class struct {
	Image           Image    `json:"image"`
	Runtime         string   `json:"runtime"`
	User            string   `json:"user"`
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
	// Masks are hidden: what lies there looks empty.
	Masks []Mask     `json:"masks"`
	Env   []string   `json:"env"`
	Log   Log        `json:"log"`
	GPUs  GPURequest `json:"gpus"`
	// Transfer is [TransferBind] or [TransferCopy]: whether the host paths of the
	// binds are the caller's own or those of a depot.
	Transfer string `json:"transfer"`
}

// Image is the image of a class. ID is empty in a plan and filled in once the
// image was resolved; a container is only ever created from an ID.
type Image struct {
	Reference string `json:"reference"`
	ID        string `json:"id"`
	Digest    string `json:"digest"`
	Platform  string `json:"platform"`
	Locked    bool   `json:"locked"`
}

// Seccomp names the profile that is sent with the create request.
type Seccomp struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// Cgroup are the limits that the kernel keeps for the whole container.
type Cgroup struct {
	Version     int   `json:"version"`
	MemoryBytes int64 `json:"memory_bytes"`
	SwapBytes   int64 `json:"swap_bytes"`
	NanoCPUs    int64 `json:"nano_cpus"`
	PIDs        int64 `json:"pids"`
	ShmBytes    int64 `json:"shm_bytes"`
}

// Tmpfs is a writable, bounded file system in memory that vanishes.
type Tmpfs struct {
	Target    string `json:"target"`
	SizeBytes int64  `json:"size_bytes"`
	Inodes    int64  `json:"inodes"`
}

// Bind is the shape of a bind mount: which role it plays, not which host path.
type Bind struct {
	Role     string `json:"role"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
}

// Roles of bind mounts. Those of mounts and trees end in a dash and their number in
// the [Job].
const (
	RoleInput   = "input"
	RoleFinal   = "final"
	RoleProgram = "program"
	RoleMount   = "mount"
	RoleTree    = "tree"
	// RoleEmpty is the empty file that hides files.
	RoleEmpty = "empty"
)

// Mask hides a file or folder of a mount: an empty file or folder, which nobody can
// write, lies on top of it.
type Mask struct {
	Target string `json:"target"`
	Folder bool   `json:"folder"`
	// Role is what lies on top instead, if the path is watched.
	Role string `json:"role,omitempty"`
}

// Log is the engine's own bounded copy of the output: what is left of it when
// the controller dies.
type Log struct {
	Driver  string            `json:"driver"`
	Options map[string]string `json:"options"`
}

// Job is the one program of a run.
type Job struct {
	RunID   string            `json:"run_id"`
	Name    string            `json:"name"`
	Labels  map[string]string `json:"labels"`
	Command []string          `json:"command"`
	Env     []string          `json:"env"`
	// Script, Input and Final are host paths; the empty string is none, and
	// for Final the record's own folder.
	Script string `json:"script"`
	Input  string `json:"input"`
	Final  string `json:"final"`
	// Mounts and Trees are the sources of the binds with those roles, in order.
	Mounts []HostMount `json:"mounts"`
	Trees  []JobTree   `json:"trees"`
	Stdin  bool        `json:"stdin"`
	// NoFork forbids the program to start processes.
	NoFork bool `json:"no_fork,omitempty"`
	Keep   bool `json:"keep"`
	// Egress is what the program may reach through a proxy; nil is nothing.
	Egress *Egress `json:"egress,omitempty"`
	// Observe is what is observed; nil is nothing.
	Observe *Observation `json:"observe,omitempty"`

	TimeoutSeconds float64 `json:"timeout_seconds"`
	GraceSeconds   float64 `json:"grace_seconds"`

	DiskBytes          int64 `json:"disk_bytes"`
	OutputLimitBytes   int64 `json:"output_limit_bytes"`
	StreamFileBytes    int64 `json:"stream_file_bytes"`
	CaptureStdoutBytes int64 `json:"capture_stdout_bytes"`
	CaptureStderrBytes int64 `json:"capture_stderr_bytes"`
	OutputFiles        int   `json:"output_files"`
	OutputDepth        int   `json:"output_depth"`
	OutputFileBytes    int64 `json:"output_file_bytes"`
	OutputTotalBytes   int64 `json:"output_total_bytes"`
}

// HostMount is a file or folder of the host that is mounted read-only.
type HostMount struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// JobTree is a folder of the host that the program gets a copy of; an empty source is
// an empty folder.
type JobTree struct {
	Source string `json:"source"`
	Target string `json:"target"`
	// Exclude and Deny are paths below the source that are not copied. What is
	// denied is not copied by any other name either, and never written.
	Exclude []string `json:"exclude"`
	Deny    []string `json:"deny"`
}

// Hash identifies the class: two specs with the same hash may use the same
// prepared container.
func (c Class) Hash() string {
	text, err := json.Marshal(c)
	if err != nil {
		// A Class holds strings, numbers and booleans only.
		panic(fmt.Sprintf("spec: class cannot be encoded: %v", err))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// ContainerName is the name of the run's container. It is known before the
// container exists, so that a controller that dies in between can be cleaned up
// after.
func (j Job) ContainerName() string { return namespace + "-" + j.RunID }
