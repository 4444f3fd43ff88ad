package contract

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/policy"
)

// DefaultProfile is the profile of a contract that names none.
const DefaultProfile = "contract"

// defaultMIMEType is that of an artifact of which nothing is said.
const defaultMIMEType = "application/octet-stream"

// WithDefaults returns the contract with everything filled in that it leaves open:
// limits of its profile, levels, expected exit code. Limits of a profile that does not
// exist stay open. The contract itself is not changed.
func (c Contract) WithDefaults(profiles policy.Profiles) Contract {
	fill(&c.Schema, SchemaV1)
	fill(&c.Inputs.WorkingDirectory, ".")
	fill(&c.Sandbox.Profile, DefaultProfile)
	if p, ok := profiles[c.Sandbox.Profile]; ok {
		s, capture := &c.Sandbox, &c.Outputs.Capture
		fillLimit(&s.TimeoutMS, p.TimeoutMS)
		fillLimit(&s.MemoryMB, p.MemoryMB)
		fillLimit(&s.CPUCores, p.CPUCores)
		fillLimit(&s.Processes.MaxChildren, p.MaxChildren)
		fillLimit(&capture.StdoutBytes, p.StdoutBytes)
		fillLimit(&capture.StderrBytes, p.StderrBytes)
		fillLimit(&capture.OutputFilesBytes, p.OutputFilesBytes)
		fillLimit(&capture.ArtifactsBytes, p.ArtifactsBytes)
	}
	if c.Sandbox.Processes.AllowFork == nil {
		c.Sandbox.Processes.AllowFork = new(true)
	}
	fill(&c.Sandbox.Filesystem.Level, string(policy.Minimal))
	level := c.Sandbox.Network.effectiveLevel()
	c.Sandbox.Network.Level, c.Sandbox.Network.Enabled = string(level), new(level != policy.Offline)
	if c.Outputs.ExitCode == nil {
		c.Outputs.ExitCode = new(0)
	}
	c.Outputs.Artifacts = slices.Clone(c.Outputs.Artifacts)
	for i := range c.Outputs.Artifacts {
		fill(&c.Outputs.Artifacts[i].MIMEType, defaultMIMEType)
	}
	return c
}

func fill(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func fillLimit(field **int64, r policy.Range) {
	if *field == nil {
		*field = new(r.Default)
	}
}

// effectiveLevel is the level that level and enabled make together. Nothing is opened
// that is not asked for.
func (n Network) effectiveLevel() policy.NetworkLevel {
	switch {
	case n.Enabled != nil && !*n.Enabled:
		return policy.Offline
	case n.Level != "":
		return policy.NetworkLevel(n.Level)
	case n.Enabled != nil:
		return policy.API
	}
	return policy.Offline
}

// SHA256 is the hash of what is to be executed: of the contract's JSON with defaults
// filled in. The form of the document, the order of its keys and its comments do not
// change it. Nor does the execution ID: it is made anew for each execution, and whoever
// approves a contract approves what it does. It says nothing of the files that the
// contract names.
func (c Contract) SHA256(profiles policy.Profiles) string {
	c = c.WithDefaults(profiles)
	c.ExecutionID = ""
	// Fields are in the order of the types, and the keys of maps are sorted.
	text, err := json.Marshal(c)
	if err != nil {
		panic("contract: " + err.Error()) // text, numbers and lists only
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}
