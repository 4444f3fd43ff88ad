package evaluate

import (
	"cmp"
	"strconv"
)

// Key tells evaluations of different scripts apart: two with the same name, script
// (as it was handed in, before any repair), seed and repetition are of the same.
func (e Evaluation) Key() string {
	return e.slot() + "\x00" + e.version()
}

// slot is the place of an evaluation in a leaderboard: name, seed and repetition.
func (e Evaluation) slot() string {
	seed := ""
	if e.Seed != nil {
		seed = strconv.FormatUint(uint64(*e.Seed), 10)
	}
	return e.Name + "\x00" + seed + "\x00" + strconv.Itoa(e.Repetition)
}

// version is the hash of the script as it was handed in.
func (e Evaluation) version() string { return cmp.Or(e.OriginalSHA256, e.ScriptSHA256) }

// Replaced counts the evaluations that another one of the same name, seed, repetition and
// competition takes the place of.
type Replaced struct {
	// Repeated are of the same script, evaluated in the same way: also one that is later,
	// but not conclusive.
	Repeated int
	// Setup are of the same script, evaluated in another way.
	Setup int
	// Edited are of another version of the script.
	Edited int
}

// All is the sum.
func (r Replaced) All() int { return r.Repeated + r.Setup + r.Edited }

// Latest returns what counts of the evaluations of a results file, in the order of its
// lines: of each name, seed, repetition and competition one evaluation, in the order in
// which they came first. It is of the script's last version, and of that the last one that
// is conclusive, or else the last one.
func Latest(evaluations []Evaluation) (latest []Evaluation, replaced Replaced) {
	at := map[string]int{}
	for _, e := range evaluations {
		key := e.CompetitionID + "\x00" + e.slot()
		i, there := at[key]
		if !there {
			at[key] = len(latest)
			latest = append(latest, e)
			continue
		}
		before := latest[i]
		switch {
		case before.version() != e.version():
			replaced.Edited++
		case before.SetupSHA256 != e.SetupSHA256:
			replaced.Setup++
		default:
			replaced.Repeated++
		}
		if before.version() != e.version() || e.Conclusive() || !before.Conclusive() {
			latest[i] = e
		}
	}
	return latest, replaced
}

// Competitions returns the competitions of evaluations, in the order in which they come
// first. Scores of different ones cannot be compared.
func Competitions(evaluations []Evaluation) []string {
	var ids []string
	seen := map[string]bool{}
	for _, e := range evaluations {
		if !seen[e.CompetitionID] {
			seen[e.CompetitionID] = true
			ids = append(ids, e.CompetitionID)
		}
	}
	return ids
}
