// Package sweep runs a tool over axes of values and over seeds, each combination in a
// directory of its own (MI-08 to MI-11).
//
// [NewPlan] decides everything: the order of the runs, the names of their directories, the
// spec of each one. It does no I/O and refuses runs that cannot be distinguished. [Run]
// carries a plan out on a queue of jobs, and resumes an interrupted one.
//
// Nothing here reads the clock or a random number. The sweep's manifest holds the values,
// the seeds and the hashes of the tool's manifests only, so it is the same, byte for byte,
// however many runs went on at once.
package sweep
