package contract

// Executed is a contract as it was carried out: what the program really got.
type Executed struct {
	// Command is the whole command line inside the container.
	Command []string `json:"command"`
	// Environment is what the program is given as sorted NAME=value pairs, beside what is
	// of the image (PATH above all) and of the container (HOSTNAME).
	Environment []string `json:"environment"`
	// WorkingDirectory is the folder inside the container.
	WorkingDirectory string `json:"working_directory"`
	// Stdin is the number of bytes and their hash.
	StdinBytes  int64       `json:"stdin_bytes"`
	StdinSHA256 string      `json:"stdin_sha256"`
	InputFiles  []InputFile `json:"input_files"`
	// Image is the ID of the image; Locked says that it is the locked one.
	Image  string `json:"image"`
	Locked bool   `json:"locked"`

	// The limits as enforced.
	Profile   string `json:"profile"`
	TimeoutMS int64  `json:"timeout_ms"`
	MemoryMB  int64  `json:"memory_mb"`
	CPUCores  int64  `json:"cpu_cores"`
	// PIDs is how many processes and threads the program may have at once.
	PIDs      int64 `json:"pids"`
	AllowFork bool  `json:"allow_fork"`

	FilesystemLevel string  `json:"filesystem_level"`
	Mounts          []Mount `json:"mounts"`
	NetworkLevel    string  `json:"network_level"`
	// NetworkAllow and NetworkDeny are the lists that the proxy went by.
	NetworkAllow []string `json:"network_allow"`
	NetworkDeny  []string `json:"network_deny"`
}

// InputFile is one declared input.
type InputFile struct {
	Path      string `json:"path"`
	SizeBytes int64  `json:"size_bytes"`
	SHA256    string `json:"sha256"`
}

// Mount is one folder or file of the host inside the container.
type Mount struct {
	// Source is the host path; empty for what is hidden.
	Source string `json:"source"`
	Target string `json:"target"`
	// Mode is ro, rw or hidden.
	Mode string `json:"mode"`
}
