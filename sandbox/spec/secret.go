package spec

import "slices"

// Secret is a variable of a program's environment whose value no request, plan or record holds.
// It says where the caller has the value. The runner reads it right before the run, and hands
// it to the container's init over the stream that carries the job.
type Secret struct {
	// Name is the variable in the program.
	Name string `json:"name"`
	// File is a file of the caller with the value; a newline at its end is not part of it.
	// Without one the value is that of the variable Name of the caller.
	File string `json:"file,omitzero"`
}

// WithSecrets returns the job with the values of its secrets, as NAME=value. Only
// [Job.ProgramEnv] of the returned job has them: they are not written, logged or printed with
// it.
func (j Job) WithSecrets(pairs []string) Job {
	if len(pairs) == 0 {
		return j
	}
	// A function: neither an encoder nor a format of package fmt looks into it.
	j.secrets = func() []string { return pairs }
	return j
}

// ProgramEnv is the environment of the job with the values of its secrets.
func (j Job) ProgramEnv() []string {
	if j.secrets == nil {
		return j.Env
	}
	return slices.Concat(j.Env, j.secrets())
}
