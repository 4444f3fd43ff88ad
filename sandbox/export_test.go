package sandbox

// At calls f at each step of the runs of a runner.
func (r *Runner) At(f func(step string)) { r.at = func(step string, _ *run) { f(step) } }

// stepsOfARun are the points at which a controller can die, in their order.
var stepsOfARun = []string{"staged", "journaled", "prepared", "granted", "noted", "accepted", "ended", "collected", "written"}

// StepsOfARun is stepsOfARun for the tests of other packages.
func StepsOfARun() []string { return stepsOfARun }
