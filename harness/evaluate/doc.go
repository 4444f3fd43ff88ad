// Package evaluate turns Python solution scripts into scores: one script, one with repairs,
// or thousands. Every script runs in a fresh container.
//
// [Harness.Run] is the way of one [Job]:
//
//	check the script → write it → look into the cache → run it → read score and error
//	→ check the submission → grade → cache
//
// [Harness.Batch] runs many jobs on a [trial.Queue], and goes on where an earlier batch was
// interrupted. [RankResults] orders what came out. [Harness.Trial] is the same harness for
// a queue, a server or a log of trials.
//
// A [Result] says what a script did; refusing the script is a result, too. An error says that
// we failed.
//
// Package mlestar has the data model of the specification, package submission the check of a
// submission. Identifiers such as EX-015, DM-009 and AI-11 are those of docs/requirements.md.
package evaluate
