package evaluate

// A Resumption says what an interrupted batch has left to do.
type Resumption struct {
	// Known has the conclusive evaluation of each script that was asked for, in their
	// order; nil for one that has none.
	Known []*Evaluation
	// Earlier has, for those that have none, the last evaluation of the same script and
	// setup, if there is any; see [Job.Earlier].
	Earlier []*Evaluation
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
// hash, seed, repetition, competition and setup. What was evaluated in another way
// meanwhile makes nothing forgotten.
func Resume(wanted, old []Evaluation) Resumption {
	exact := func(e Evaluation) string { return e.Key() + "\x00" + e.CompetitionID + "\x00" + e.SetupSHA256 }
	latest, versions, slots := map[string]*Evaluation{}, map[string]bool{}, map[string]bool{}
	for i := range old {
		e := &old[i]
		slots[e.slot()], versions[e.Key()] = true, true
		// What a later try could not find out does not undo what is known.
		if before := latest[exact(*e)]; before == nil || e.Conclusive() || !before.Conclusive() {
			latest[exact(*e)] = e
		}
	}
	r := Resumption{Known: make([]*Evaluation, len(wanted)), Earlier: make([]*Evaluation, len(wanted))}
	for i, w := range wanted {
		switch e := latest[exact(w)]; {
		case e != nil && e.Conclusive():
			r.Known[i] = e
			r.Done++
		case e != nil:
			r.Earlier[i] = e
			r.Inconclusive++
		case versions[w.Key()]:
			r.Setup++
		case slots[w.slot()]:
			r.Changed++
		}
	}
	return r
}
