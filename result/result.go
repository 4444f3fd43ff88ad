// Package result describes the end of a run and its output: the wire form
// [Result], the enums [Status] and [Fault], and the pure parsers that find a
// score and a traceback in the output of a program.
//
// The package uses the standard library only, does no I/O, and every parser
// takes linear time on any input.
package result

import _ "embed" // for the schema

// SchemaV1 names the wire form of [Result]. A breaking change of the wire form
// gets a new name.
const SchemaV1 = "evalbox/result/v1"

// SchemaJSON is the JSON Schema (draft 2020-12) of [Result], under the name
// [SchemaV1]. It is the contract for readers in other languages; a test holds it
// and the Go types together.
//
//go:embed schema.json
var SchemaJSON []byte

// Result describes the run of one program in one container, in the wire form of
// schema [SchemaV1]. It is plain data: copying it is safe as long as the slices
// and maps are not changed.
//
// A failure of the sandbox itself is an error from the runner. Two statuses,
// [StatusStartFailed] and [StatusEngineLost], exist so that a record can still
// hold the evidence from before such a failure.
type Result struct {
	// Schema is always [SchemaV1].
	Schema string `json:"schema"`
	// ID identifies the run and names its record directory.
	ID string `json:"id"`
	// Name is the caller's name of the run; empty when none was given.
	Name string `json:"name"`
	// Labels are the caller's labels.
	Labels map[string]string `json:"labels"`

	// Status says how the run ended. Several facts decide it in a fixed order,
	// never the exit code alone.
	Status Status `json:"status"`
	// Fault says who should look at a run that did not end well.
	Fault Fault `json:"fault"`
	// ExitCode is the program's exit code: -1 when TimedOut, 128+n when signal
	// n ended the program. It is -1 as well when the program never ended, and
	// when the engine did not start it; a command that is not executable or not
	// in the image has 126 or 127.
	ExitCode int `json:"exit_code"`
	// Signal is the number of the signal that ended the program, 0 if none.
	Signal int `json:"signal"`
	// TimedOut says that the time limit, or its soft signal, ended the run (EX-009). The
	// flag decides, never the exit code.
	TimedOut bool `json:"timed_out"`
	// Deadline is the part of the time limit in the end of the run.
	Deadline Deadline `json:"deadline"`
	// OOMKilled says that the kernel killed a process of the run for memory.
	// The main process may still have ended normally.
	OOMKilled bool `json:"oom_killed"`
	// Explanation is one sentence for people on how the run ended.
	Explanation string `json:"explanation"`
	// Recovered says that the process that had started the run died, and that another one
	// finished it with what the engine had kept.
	Recovered bool `json:"recovered,omitempty"`
	// ContainerLeft says that the container could not be removed, and may hold processes of the
	// program; Warnings says why.
	ContainerLeft bool `json:"container_left,omitempty"`

	// Stdout and Stderr are the output of the program, as UTF-8 with invalid
	// bytes replaced (EX-043). A stream longer than the capture limit is kept
	// as head, a marker line with the number of dropped bytes, and tail.
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// StdoutBytes and StderrBytes count the bytes that the program wrote.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// StdoutTruncated and StderrTruncated say that bytes were dropped from
	// Stdout or Stderr.
	StdoutTruncated bool `json:"stdout_truncated"`
	StderrTruncated bool `json:"stderr_truncated"`
	// OutputComplete is false when bytes of the program may have been lost on
	// the way. After an outage of the engine its log fills the gap; then this
	// says whether the log has all that had arrived before, and the end.
	OutputComplete bool `json:"output_complete"`

	// StartedAt and FinishedAt are the engine's own times (RFC 3339, UTC);
	// empty when the program never started or never ended.
	StartedAt  string `json:"started_at"`
	FinishedAt string `json:"finished_at"`
	// DurationSeconds is the program's wall-clock time, from StartedAt to
	// FinishedAt.
	DurationSeconds float64 `json:"duration_seconds"`
	// SetupSeconds is the time from the call to the start of the program, and
	// TeardownSeconds the time from its end to the result.
	SetupSeconds    float64 `json:"setup_seconds"`
	TeardownSeconds float64 `json:"teardown_seconds"`

	// Score is the number of the last score line in the whole of stdout, its
	// dropped middle included (EX-011). It is nil without one and never NaN or
	// infinite; Warnings names a score line that is not finite. Output that is
	// not complete has no score; Warnings then names the last one seen.
	Score *float64 `json:"score"`
	// ScoreUnfinished says that Score is the last one of a program that did not end by
	// itself: a limit, the kernel or somebody else ended it.
	ScoreUnfinished bool `json:"score_unfinished"`
	// ScoreCut says that the text behind the number belongs to it, so that the program means another
	// score; see [ScoreCut]. Warnings has the number.
	ScoreCut bool `json:"score_cut,omitempty"`
	// IsError is the rule of EX-013: exit code not 0, or timed out, or the
	// traceback marker in stderr.
	IsError bool `json:"is_error"`
	// ErrorReason says which part of that rule holds; empty without error.
	ErrorReason ErrorReason `json:"error_reason"`
	// ErrorTraceback is the last complete Python traceback of the whole of
	// stderr (EX-012), only when IsError.
	ErrorTraceback *string `json:"error_traceback"`
	// ErrorSummary is the tail of stderr when IsError holds without a traceback:
	// a syntax error in the script itself prints none.
	ErrorSummary string `json:"error_summary"`

	Image     Image     `json:"image"`
	Enforced  Enforced  `json:"enforced"`
	Resources Resources `json:"resources"`
	// Network describes the use of the proxy of the run; nil for a run without a proxy,
	// which reached nothing.
	Network *Network `json:"network,omitempty"`
	// Pool says whether the run had a container that was prepared ahead; nil for a run of a
	// runner without a pool.
	Pool *Pool `json:"pool,omitempty"`
	// Observed has the refused attempts of the program; nil unless the request asked for them.
	Observed *Observed `json:"observed,omitempty"`
	// Preload says whether the program ran in an interpreter that had imported modules
	// before; nil unless the request asked for it.
	Preload *Preload `json:"preload,omitempty"`
	// Metrics sums up the measurements of the run; nil if there were none.
	Metrics *Metrics `json:"metrics,omitempty"`
	// StoppedBy is the rule of a run that a stop rule ended ([StatusStoppedByRule]), and the facts
	// that fulfilled it; nil for other runs.
	StoppedBy *StoppedBy `json:"stopped_by,omitempty"`

	// Outputs are the regular files of ./final, sorted by path.
	Outputs []Output `json:"outputs"`
	// OutputsSkipped are the other entries of ./final, with the reason.
	OutputsSkipped []SkippedOutput `json:"outputs_skipped"`
	// OutputsLeftOut is the number of files in ./final that are not in Outputs. It is larger than the
	// number of OutputsSkipped if an entry of them stands for several files. There are at least so many:
	// files in directories that cannot be read, and beyond the first 1,000,000 entries, are not counted.
	OutputsLeftOut int `json:"outputs_left_out,omitzero"`
	// Vanished are the files that the program left in its working directory, which ended with
	// the container; nil if there were none, or if that is not known.
	Vanished *Vanished `json:"vanished,omitempty"`
	// Trees are the directories that the program could change, with its changes.
	Trees []Tree `json:"trees"`
	// Warnings are sentences for a careful reader.
	Warnings []string `json:"warnings"`
}

// StoppedBy says which stop rule ended a run.
type StoppedBy struct {
	// Rule is the rule as it was given, such as "metric.loss is nan".
	Rule string `json:"rule"`
	// Reason is one sentence with the facts that fulfilled it.
	Reason string `json:"reason"`
}

// Pool says whether a run had a container that was prepared ahead and had waited for it.
type Pool struct {
	Waited bool `json:"waited"`
	// Reason is why the run had to wait for its container instead; empty if Waited.
	Reason string `json:"reason,omitempty"`
}

// Conclusive reports whether the end of the run says something about its program, so that the
// run is done: nobody or the program itself is at fault. Every other run was disturbed by its
// environment or by an operator, and is to be run again. It is the only rule for this question.
func (r Result) Conclusive() bool {
	return r.Status != 0 && (r.Fault == FaultNone || r.Fault == FaultProgram)
}

// Image is the image that the program ran in.
type Image struct {
	// Name is the catalog name or the reference that was asked for.
	Name string `json:"name"`
	// ID is the engine's content address of the image ("sha256:…").
	ID string `json:"id"`
	// Digest is the registry digest; empty for an image that never was in a registry.
	Digest string `json:"digest"`
	// Platform is os/arch[/variant].
	Platform string `json:"platform"`
	// Locked says that the image was compared with a lock and is the locked one.
	Locked bool `json:"locked"`
	// Reported is the image of the container as the engine's machine reported it after the start; empty
	// if it did not. A warning says so if its digest is not Digest.
	Reported string `json:"reported,omitempty"`
}

// Enforced has the values that were applied to the run, whatever was requested.
type Enforced struct {
	// Engine is the engine's name and version, APIVersion the negotiated API.
	Engine     string `json:"engine"`
	APIVersion string `json:"api_version"`
	// Runtime is the OCI runtime ("runc", "runsc").
	Runtime string `json:"runtime"`
	// CgroupVersion is 1 or 2; 0 when unknown.
	CgroupVersion int `json:"cgroup_version"`
	// User is the numeric uid:gid inside the container.
	User string `json:"user"`
	// Network is the network that the container was attached to.
	Network string `json:"network"`
	// Transfer is how files reached the engine: "bind" mounts the directories
	// themselves, "copy" copies them there and back.
	Transfer string `json:"transfer"`

	TimeoutSeconds float64 `json:"timeout_seconds"`
	// SoftTimeoutSeconds is the time after which the program gets SoftSignal, as a request
	// to finish; 0 and empty if it does not.
	SoftTimeoutSeconds float64 `json:"soft_timeout_seconds"`
	SoftSignal         string  `json:"soft_signal"`
	GraceSeconds       float64 `json:"grace_seconds"`
	MemoryBytes        int64   `json:"memory_bytes"`
	SwapBytes          int64   `json:"swap_bytes"`
	CPUs               float64 `json:"cpus"`
	// PIDs bounds the processes and threads of the program at one time. ProxyPIDs is
	// always 0: the way to the proxy of a network level takes no process.
	PIDs         int64 `json:"pids"`
	ProxyPIDs    int64 `json:"proxy_pids"`
	ShmBytes     int64 `json:"shm_bytes"`
	TmpBytes     int64 `json:"tmp_bytes"`
	ScratchBytes int64 `json:"scratch_bytes"`
	DiskBytes    int64 `json:"disk_bytes"`
	// Disk says how the disk limit was enforced.
	Disk             DiskBound `json:"disk"`
	OutputLimitBytes int64     `json:"output_limit_bytes"`
	StreamFileBytes  int64     `json:"stream_file_bytes"`

	ReadOnlyRoot    bool     `json:"read_only_root"`
	NoNewPrivileges bool     `json:"no_new_privileges"`
	CapDrop         []string `json:"cap_drop"`
	// Seccomp names the profile, with the SHA-256 of its text.
	Seccomp string `json:"seccomp"`
	// Isolation says what was between the program and the machine.
	Isolation Isolation `json:"isolation"`
	// Ulimits are "name=soft:hard"; a missing name was inherited from the engine.
	Ulimits []string `json:"ulimits"`
	Mounts  []Mount  `json:"mounts"`
	// GPUs are the device IDs that were requested from the engine. On a cluster they are not known: it
	// has the name of the resource or of the device class, once for each.
	GPUs []string `json:"gpus"`
	// GPUDriver is how they were requested: nvidia, cdi, limits or claim; empty without GPUs.
	GPUDriver string `json:"gpu_driver"`
	// GPUsShared says that other runs could have the same GPUs.
	GPUsShared bool `json:"gpus_shared"`
	// Unenforced lists the limits that the engine could not enforce: "swap", "pids", "inodes",
	// "seccomp", "interfaces", "network". SwapBytes is then -1 without a limit, and PIDs 0.
	Unenforced []string `json:"unenforced,omitempty"`
}

// Isolation says what was in force between a program, the machine and other runs. The zero
// Isolation is that of results of earlier versions.
type Isolation struct {
	// Grade sums the rest up: weak, basic, separate, layered or own_kernel. Missing lists
	// what the next grade needs.
	Grade   string   `json:"grade"`
	Missing []string `json:"missing"`
	// Runtime is the OCI runtime, and OwnKernel whether it has a kernel of its own.
	Runtime   string `json:"runtime"`
	OwnKernel bool   `json:"own_kernel"`
	// UserNamespace says that the users of the container are others on the machine.
	UserNamespace bool `json:"user_namespace"`
	// Seccomp names the system call filter in force; empty for none.
	Seccomp string `json:"seccomp"`
	// LSM is the security module as the engine reports it: "apparmor", "selinux", or both
	// with a comma; empty for none.
	LSM string `json:"lsm"`
	// UID is "own" if no other run had the user of the program, and "shared_uid" if another
	// one could.
	UID string `json:"uid"`
	// TerminalsBounded says that the program could not take all pseudo-terminals of the
	// machine.
	TerminalsBounded bool `json:"terminals_bounded"`
}

// Values of the field UID of an [Isolation].
const (
	OwnUID    = "own"
	SharedUID = "shared_uid"
)

// DiskBound says how the disk limit of a run was enforced. With each, no file can be larger than
// the limit (RLIMIT_FSIZE), and the files are measured while the program runs.
type DiskBound string

const (
	// DiskByLoop is a file system of the size of the limit, in a file: everything counts, deleted
	// files that are still open as well, and nothing exceeds it.
	DiskByLoop DiskBound = "loop"
	// DiskByFileSize has no more than the bound of each file, and the measurements: many files
	// can exceed the limit for a moment, and deleted files that are still open do not count.
	DiskByFileSize DiskBound = "rlimit"
)

// Mount is one mount of the container. Host paths are not part of the result.
type Mount struct {
	Target   string `json:"target"`
	Type     string `json:"type"`
	ReadOnly bool   `json:"read_only"`
}

// Resources is the resource usage of the run.
type Resources struct {
	// CPUSeconds is user plus system time of all processes of the run.
	CPUSeconds float64 `json:"cpu_seconds"`
	// PeakMemoryBytes is the highest memory charge of the container, page
	// cache included.
	PeakMemoryBytes int64 `json:"peak_memory_bytes"`
	// OOMKills counts processes that the kernel killed for memory.
	OOMKills int64 `json:"oom_kills"`
	// Source is the origin of the figures, for example "cgroup v1",
	// "cgroup v1, sampled" or "engine samples"; empty without figures. Samples
	// do not cover the time after the last one.
	Source string `json:"source"`
	// Contention says what the program lacked of the processors; nil if that is not known.
	Contention *Contention `json:"contention,omitempty"`
}

// Contention says how a program shared the processors with other work of the machine. It is judged
// by how long the threads of the program waited for a processor, never by low use: a program that
// sleeps lacks nothing. Times are sums over all threads.
type Contention struct {
	Verdict Share `json:"verdict"`
	// RanSeconds is how long threads ran, WaitedSeconds how long they could have run and had no
	// processor.
	RanSeconds    float64 `json:"ran_seconds"`
	WaitedSeconds float64 `json:"waited_seconds"`
	// LackedSeconds is the part of WaitedSeconds that the CPU limit of the run would have allowed:
	// threads that wait for each other lack nothing.
	LackedSeconds float64 `json:"lacked_seconds"`
	// ThrottledSeconds is how long the CPU limit held the run back.
	ThrottledSeconds float64 `json:"throttled_seconds"`
	// FrozenSeconds is how long the container was frozen (docker pause), so that nothing in it ran.
	FrozenSeconds float64 `json:"frozen_seconds"`
	// Source is the origin of the figures: "threads" (schedstat of proc(5), read once a second) or
	// "cgroup v2 pressure" (PSI).
	Source string `json:"source"`
}

// Share is the verdict of a [Contention].
type Share string

const (
	// Quiet means that the program hardly lacked anything.
	Quiet Share = "quiet"
	// Busy means that it lacked a noticeable part of what it could have used.
	Busy Share = "busy"
	// Starved means that it got less than half of what it could have used, and lacked at least half
	// of its time. Its time limit then says nothing about it.
	Starved Share = "starved"
)

// Preload says whether modules were imported before the program started.
type Preload struct {
	// Modules are those of the request.
	Modules []string `json:"modules"`
	// Used says that the program ran in the interpreter that had imported them. Otherwise it
	// started as without them, and Reason says why.
	Used   bool   `json:"used"`
	Reason string `json:"reason"`
}

// Vanished are regular files that a program wrote to its working directory, and not to ./final.
// Names that begin with a dot and directories named __pycache__ do not count.
type Vanished struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// Complete is false if there may have been more files.
	Complete bool `json:"complete"`
	// Names are the paths of at most 5 of them, the largest first. A name that is not clean
	// UTF-8 text is escaped.
	Names []string `json:"names"`
}

// Network is the use that a program made of the proxy of its run (CX-04).
type Network struct {
	// Level is registry, api or open.
	Level string `json:"level"`
	// Allow and Deny are the host patterns that were enforced.
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
	// Requests counts all requests, tunnels included, and Refused those among them that
	// no rule permitted.
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused"`
	// BytesUp went to hosts, BytesDown came from them.
	BytesUp   int64 `json:"bytes_up"`
	BytesDown int64 `json:"bytes_down"`
	// Log is the file of the record with one line for each request. LogDropped counts
	// the requests that exceeded its size.
	Log        string `json:"log"`
	LogDropped int64  `json:"log_dropped"`
}

// Output is one regular file of ./final.
type Output struct {
	// Path is relative to ./final, with slashes. A name that is not clean
	// UTF-8 text is escaped, and PathBase64 then holds its bytes.
	Path       string `json:"path"`
	PathBase64 string `json:"path_base64,omitempty"`
	SizeBytes  int64  `json:"size_bytes"`
	SHA256     string `json:"sha256"`
	// Mode is the permission bits in octal ("0644") as the program left them.
	// Set-user-ID and set-group-ID are taken away from the file.
	Mode string `json:"mode"`
}

// SkippedOutput is an entry of ./final that was not collected.
type SkippedOutput struct {
	Path       string `json:"path"`
	PathBase64 string `json:"path_base64,omitempty"`
	// Kind is the type of the entry: file, directory, symlink, fifo, socket,
	// device, other.
	Kind string `json:"kind"`
	// SizeBytes is the apparent size of a file.
	SizeBytes int64 `json:"size_bytes"`
	// Reason says which rule left it out.
	Reason string `json:"reason"`
}

// Tree is a directory of which the program had a copy, with its changes. The run's record
// keeps the created and changed files.
type Tree struct {
	// Target is the path inside the container.
	Target string `json:"target"`
	// Complete says that the lists hold every change: the tree could be read, and no
	// limit cut the lists.
	Complete bool `json:"complete"`
	// Entries and SizeBytes describe the copy before the run.
	Entries   int   `json:"entries"`
	SizeBytes int64 `json:"size_bytes"`
	// NotCopied are the entries of the host that are not files, directories or links.
	NotCopied []SkippedOutput `json:"not_copied"`
	// Created are new files and directories, Changed files with another content or mode,
	// and Deleted entries that no longer exist; each sorted by path.
	Created []TreeEntry `json:"created"`
	Changed []TreeEntry `json:"changed"`
	Deleted []TreeEntry `json:"deleted"`
	// Skipped are the other entries that the program left, with the reason.
	Skipped []SkippedOutput `json:"skipped"`
}

// TreeEntry is one change in a tree.
type TreeEntry struct {
	// Path is relative to the tree; see [Output].
	Path       string `json:"path"`
	PathBase64 string `json:"path_base64,omitempty"`
	// Kind is file or directory; a deleted entry may be a symlink.
	Kind      string `json:"kind"`
	SizeBytes int64  `json:"size_bytes"`
	// SHA256 is the hash of the content of a file, for a deleted file before the run;
	// empty for other kinds.
	SHA256 string `json:"sha256"`
	// Mode is the permission bits in octal, without set-user-ID and set-group-ID.
	Mode string `json:"mode"`
}

// Observed has the attempts that the sandbox refused. The rest of a [Result] does not show
// them if the program goes on after the failure.
type Observed struct {
	// NetworkAttempts counts, by the kernel's counters, the sends and connects to an
	// address without a route: TCP and UDP, IPv4 and IPv6, questions to name servers
	// included. Multicast always counts. The container's own addresses do not count, nor
	// does IPv4 that is sent through the loopback device (IP_PKTINFO), which has a route. With a network level these are attempts beside the proxy. It is nil
	// when it was not asked for, and when it could not be counted.
	NetworkAttempts *int64 `json:"network_attempts"`
	// NetworkWhy is why attempts could not be counted; empty otherwise.
	NetworkWhy string `json:"network_why"`
	// Watched are the paths inside the container that were watched, sorted. Directories
	// end with a slash.
	Watched []string `json:"watched"`
	// Opened are the watched paths, and the names in watched directories, that the
	// program opened, sorted. A directory, which ends with a slash, was opened to list
	// it; a file, to read it. A stat without an open does not count.
	Opened []string `json:"opened"`
	// WatchWhy is why paths could not be watched, or not to the end: Opened may then be
	// incomplete. It is empty otherwise.
	WatchWhy string `json:"watch_why"`
}
