// Package evaluate turns solution scripts into scores: one script, one with
// repairs, or many. Every script runs in a fresh container of package sandbox.
//
// An [Evaluator] is made of a [Runner], which is usually a *sandbox.Runner.
// [Evaluator.EvaluateSolution] is the whole way of one script: set up the working
// folder, write the script, run it, read score and error out of what it printed.
// [Evaluator.EvaluateWithRetry], [Evaluator.EvaluateBatch] and [Evaluator.Repeat]
// are built on it; [RankSolutions] orders what came out.
//
// As everywhere in this module, an [Evaluation] says what a script did, and an
// error that we failed, or that the script was refused before it ran
// ([*ScriptError]).
//
// Identifiers such as EX-015, DM-009 and AI-11 are those of docs/requirements.md.
package evaluate
