package evaluate

import (
	"crypto/sha256"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Limits are the limits of a run that a batch may raise without running everything again; see
// [Resume].
type Limits struct {
	// SetupSHA256 is the setup without these limits.
	SetupSHA256    string  `json:"setup_sha256"`
	TimeoutSeconds float64 `json:"timeout_seconds"`
	MemoryBytes    int64   `json:"memory_bytes"`
	PIDs           int64   `json:"pids"`
	ShmBytes       int64   `json:"shm_bytes"`
	TmpBytes       int64   `json:"tmp_bytes"`
	ScratchBytes   int64   `json:"scratch_bytes"`
	DiskBytes      int64   `json:"disk_bytes"`
	// OutputBytes is 0 for no limit.
	OutputBytes int64 `json:"output_bytes"`
}

// takeLimits returns the limits of a plan, and removes them from it.
func takeLimits(s *spec.Spec) *Limits {
	group, job := &s.Class.Cgroup, &s.Job
	l := &Limits{
		TimeoutSeconds: job.TimeoutSeconds, MemoryBytes: group.MemoryBytes, PIDs: group.PIDs, ShmBytes: group.ShmBytes,
		DiskBytes: job.DiskBytes, OutputBytes: job.OutputLimitBytes,
	}
	tmpfs := append([]spec.Tmpfs{}, s.Class.Tmpfs...)
	for i, t := range tmpfs {
		switch t.Target {
		case spec.TmpDir:
			l.TmpBytes = t.SizeBytes
		case spec.WorkDir:
			l.ScratchBytes = t.SizeBytes
		default:
			continue
		}
		tmpfs[i].SizeBytes, tmpfs[i].Inodes = 0, 0
	}
	s.Class.Tmpfs = tmpfs
	job.TimeoutSeconds, job.OrphanLimitSeconds, job.DiskBytes, job.FileSize, job.OutputLimitBytes = 0, 0, 0, nil, 0
	group.MemoryBytes, group.SwapBytes, group.PIDs, group.ShmBytes = 0, 0, 0, 0
	return l
}

// stands reports whether a conclusive result is also one of a run with other limits: none is lower,
// and none of those that are higher can have had a part in the end of the run. limited says that only
// the latter is wrong. The time limit had one in a run that it ended or asked to finish, the limit of the output in
// one that it ended. Of any other limit a program learns by an error of its own (no memory, no space
// left), so that only a run without an error proves that it had no part.
func (r Result) stands(other Limits) (ok, limited bool) {
	l := r.Limits
	if l == nil || l.SetupSHA256 != other.SetupSHA256 {
		return false, false
	}
	timed, output, resources := false, false, false
	for _, limit := range []struct {
		before, now float64
		grown       *bool
	}{
		{l.TimeoutSeconds, other.TimeoutSeconds, &timed},
		{orNone(l.OutputBytes), orNone(other.OutputBytes), &output},
		{float64(l.MemoryBytes), float64(other.MemoryBytes), &resources},
		{float64(l.PIDs), float64(other.PIDs), &resources},
		{float64(l.ShmBytes), float64(other.ShmBytes), &resources},
		{float64(l.TmpBytes), float64(other.TmpBytes), &resources},
		{float64(l.ScratchBytes), float64(other.ScratchBytes), &resources},
		{float64(l.DiskBytes), float64(other.DiskBytes), &resources},
	} {
		if limit.now < limit.before {
			return false, false
		}
		*limit.grown = *limit.grown || limit.now > limit.before
	}
	switch run := r.Run; {
	case run == nil:
		return true, false // it was refused by its text
	case timed && (run.Status == result.StatusTimedOut || run.Deadline != result.DeadlineNone),
		output && run.Status == result.StatusOutputLimit,
		resources && (!r.Valid() || run.OOMKilled):
		return false, true
	}
	return true, false
}

// orNone is a limit of which 0 means none.
func orNone(limit int64) float64 {
	if limit == 0 {
		return 1 << 63
	}
	return float64(limit)
}

// A Resumption is the rest of an interrupted batch.
type Resumption struct {
	// Known has the conclusive result of each script, in their order; nil for one that has none.
	Known []*Result
	// Earlier has the last inconclusive result of the same script and setup of those without a
	// conclusive one; see [Job.Earlier].
	Earlier []*Result
	// Done counts the results in Known.
	Done int
	// Changed, Setup, Limited, Inconclusive and Asked count the scripts that run again although
	// there is a result of their name and seed: because the script changed, because it was evaluated
	// in another way, because a limit that is higher now may have ended it, because the result is not
	// about the script, and because the caller asked for it.
	Changed, Setup, Limited, Inconclusive, Asked int
	// New counts the scripts without any result.
	New int
}

// Resume looks for the scripts of a batch among the results of a results file, in the order of its
// lines. Of each script, wanted has name, original hash, seed, repetition, competition, setup and
// limits. A result counts if its setup is the same, or differs only by limits that are higher now
// and that had no part in the end of its run. again, if not nil, reports which known results do not
// count. Memory besides the results is hashes only.
func Resume(wanted, old []Result, again func(Result) bool) Resumption {
	type hash = [sha256.Size]byte
	sum := func(key string) hash { return sha256.Sum256([]byte(key)) }
	latest, lower, versions, slots := map[hash]*Result{}, map[hash]*Result{}, map[hash]bool{}, map[hash]bool{}
	for i := range old {
		r := &old[i]
		slots[sum(r.slot())], versions[sum(r.Key())] = true, true
		// A later try that found nothing out does not undo a conclusive result.
		key := sum(r.jobKey())
		if before := latest[key]; before == nil || r.Conclusive() || !before.Conclusive() {
			latest[key] = r
		}
		if r.Limits != nil && r.Conclusive() {
			lower[sum(r.limitsKey())] = r
		}
	}
	left := Resumption{Known: make([]*Result, len(wanted)), Earlier: make([]*Result, len(wanted))}
	for i, w := range wanted {
		r, limited := latest[sum(w.jobKey())], false
		if w.Limits != nil && (r == nil || !r.Conclusive()) {
			if before := lower[sum(w.limitsKey())]; before != nil {
				var ok bool
				if ok, limited = before.stands(*w.Limits); ok {
					r = before
				}
			}
		}
		switch {
		case r != nil && r.Conclusive() && again != nil && again(*r):
			left.Asked++
		case r != nil && r.Conclusive():
			left.Known[i] = r
			left.Done++
		case r != nil:
			left.Earlier[i] = r
			left.Inconclusive++
		case limited:
			left.Limited++
		case versions[sum(w.Key())]:
			left.Setup++
		case slots[sum(w.slot())]:
			left.Changed++
		default:
			left.New++
		}
	}
	return left
}

// limitsKey is [Result.jobKey] without the limits. They must not be nil.
func (r Result) limitsKey() string {
	return r.Key() + "\x00" + r.CompetitionID + "\x00" + r.Limits.SetupSHA256
}
