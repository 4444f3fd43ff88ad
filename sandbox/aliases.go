package sandbox

import (
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// The data of a request and of its plan, for callers of this package. See [spec].
type (
	Request     = spec.Request
	Mount       = spec.Mount
	Tree        = spec.Tree
	FakeClock   = spec.FakeClock
	Observe     = spec.Observe
	PathError   = spec.PathError
	Spec        = spec.Spec
	Class       = spec.Class
	Job         = spec.Job
	Image       = spec.Image
	Tmpfs       = spec.Tmpfs
	Bind        = spec.Bind
	Mask        = spec.Mask
	HostMount   = spec.HostMount
	JobTree     = spec.JobTree
	Egress      = spec.Egress
	Observation = spec.Observation
	Watch       = spec.Watch
	GPURequest  = spec.GPURequest
	HostGPUs    = spec.HostGPUs
	Host        = spec.Host
	Ulimit      = spec.Ulimit
	Cgroup      = spec.Cgroup
)

// The vocabulary of the plan.
const (
	SpecSchemaV1 = spec.SchemaV1

	WorkDir  = spec.WorkDir
	InputDir = spec.InputDir
	FinalDir = spec.FinalDir
	TmpDir   = spec.TmpDir
	RepoDir  = spec.RepoDir
	HostDir  = spec.HostDir

	LabelManaged  = spec.LabelManaged
	LabelRun      = spec.LabelRun
	LabelName     = spec.LabelName
	LabelOwner    = spec.LabelOwner
	LabelDeadline = spec.LabelDeadline
	LabelKeep     = spec.LabelKeep
	LabelSpec     = spec.LabelSpec
	LabelState    = spec.LabelState
	LabelPart     = spec.LabelPart

	RoleInput   = spec.RoleInput
	RoleFinal   = spec.RoleFinal
	RoleProgram = spec.RoleProgram
	RoleMount   = spec.RoleMount
	RoleTree    = spec.RoleTree
	RoleWatch   = spec.RoleWatch

	TransferAuto = spec.TransferAuto
	TransferBind = spec.TransferBind
	TransferCopy = spec.TransferCopy

	DedicatedUser = spec.DedicatedUser
)

// Errors of engines. See [engine].
var (
	ErrEngineUnavailable = engine.ErrUnavailable
	ErrEnginePermission  = engine.ErrPermission
	ErrNoContainer       = engine.ErrNoContainer
	ErrNameTaken         = engine.ErrNameTaken
)
