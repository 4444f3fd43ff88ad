package contract

import (
	"time"

	"github.com/evalbox/evalbox/policy"
)

// effective is what the contract amounts to. What is missing because of a violation is
// zero.
func (k *checker) effective() Effective {
	s, capture := k.c.Sandbox, k.c.Outputs.Capture
	e := Effective{
		Contract: k.c, Tool: k.t, Profile: s.Profile,
		Memory:          policy.Size(value(s.MemoryMB)) * policy.MiB,
		CPUs:            value(s.CPUCores),
		MaxChildren:     value(s.Processes.MaxChildren),
		AllowFork:       *s.Processes.AllowFork,
		FilesystemLevel: policy.FilesystemLevel(s.Filesystem.Level),
		NetworkLevel:    policy.NetworkLevel(s.Network.Level),
		Stdout:          policy.Size(value(capture.StdoutBytes)),
		Stderr:          policy.Size(value(capture.StderrBytes)),
		OutputFiles:     policy.Size(value(capture.OutputFilesBytes)),
		Artifacts:       policy.Size(value(capture.ArtifactsBytes)),
		Clock:           k.clock, Needs: k.needs, Warnings: k.warnings,
	}
	e.Timeout = time.Duration(value(s.TimeoutMS)) * time.Millisecond
	e.Contract.Inputs.Environment = k.env
	return e
}

// value is what a pointer leads to, or zero.
func value(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}
