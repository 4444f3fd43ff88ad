package sandbox

// At calls f at each step of the runs of a runner.
func (r *Runner) At(f func(step string)) { r.at = func(step string, _ *run) { f(step) } }

// stepsOfARun are the points at which a controller can die, in their order.
var stepsOfARun = []string{"staged", "journaled", "prepared", "begun", "noted", "accepted", "ended", "collected", "written"}

// StepsOfARun is stepsOfARun for the tests of other packages.
func StepsOfARun() []string { return stepsOfARun }

// LabelsOfVersion1 are labels as version 1 of the state directory has them, as text: whatever labels
// become, [Runner.GC] removes what has these. The owner was a process of an earlier boot, and the
// deadline is over; with an owner they are of that one, without a deadline.
func LabelsOfVersion1(run, part, owner, state string) map[string]string {
	labels := map[string]string{
		"org.evalbox.managed": "true", "org.evalbox.run": run, "org.evalbox.spec": "sha256:5a5a5a5a", "org.evalbox.state-dir": state,
		"org.evalbox.owner":    "9a1d7c52-0f6e-4c58-9c1b-2f4b6f3e8d10/4026531836/4242/1718190",
		"org.evalbox.deadline": "2024-01-02T15:04:05Z",
	}
	if owner != "" {
		labels["org.evalbox.owner"] = owner
		delete(labels, "org.evalbox.deadline")
	}
	if part != "" {
		labels["org.evalbox.part"] = part
	}
	return labels
}
