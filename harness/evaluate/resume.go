package evaluate

import "fmt"

// A Resumption says what an interrupted batch has left to do.
type Resumption struct {
	// Known has the conclusive evaluation of each script that was asked for, in their
	// order; nil for one that has none.
	Known []*Evaluation
	// Done counts the others of Known.
	Done int
	// Changed, Setup and Inconclusive count the scripts that are to run again
	// although there is an evaluation of their name and seed: because the script is
	// another, because it was evaluated in another way, or because the evaluation
	// says nothing about the script.
	Changed, Setup, Inconclusive int
}

// Resume looks for the scripts of a batch among the evaluations of a results file, in
// the order of its lines. Of each script that is asked for, wanted has name, original
// hash, seed and setup.
func Resume(wanted, old []Evaluation) Resumption {
	type script struct{ name, seed string }
	of := func(e Evaluation) script {
		if e.Seed == nil {
			return script{name: e.Name}
		}
		return script{e.Name, fmt.Sprint(*e.Seed)}
	}
	latest, seen := map[string]*Evaluation{}, map[script]bool{}
	for i := range old {
		e := &old[i]
		seen[of(*e)] = true
		// What a later try could not find out does not undo what is known.
		if before := latest[e.Key()]; before == nil || e.Conclusive() || e.SetupSHA256 != before.SetupSHA256 {
			latest[e.Key()] = e
		}
	}
	r := Resumption{Known: make([]*Evaluation, len(wanted))}
	for i, w := range wanted {
		switch e := latest[w.Key()]; {
		case e == nil && seen[of(w)]:
			r.Changed++
		case e == nil:
		case e.SetupSHA256 != w.SetupSHA256:
			r.Setup++
		case !e.Conclusive():
			r.Inconclusive++
		default:
			r.Known[i] = e
			r.Done++
		}
	}
	return r
}
