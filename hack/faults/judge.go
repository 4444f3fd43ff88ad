package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/result"
)

// A meddler is who could have ended a program, besides itself. The fault says it.
type meddler int

const (
	nobody meddler = iota
	// theCaller interrupted the controller.
	theCaller
	// theEngine ended its containers, or lost one.
	theEngine
	// anOperator used the engine to end the program: anyhow, with SIGTERM, which its init knows, or
	// with SIGKILL, which only the engine knows.
	anOperator
	operatorTerm
	operatorKill
	// aNeighbor sent the container a signal on the engine's machine, past the engine.
	aNeighbor
	// aPauser stopped the program, but not the clock of its time limit.
	aPauser
	// theCrowd took the processors of the program.
	theCrowd
	// theMachine has a disk that takes nothing any more.
	theMachine
)

// truth is what really happened to a program: what it wrote down itself, and what the fault
// did to it.
type truth struct {
	// Starts counts the runs of the program. Alive says that it still runs at the very end.
	Starts int
	Alive  bool
	// Scores are those that it printed, in order. Next is the one that it prints after them: it
	// may be killed before it can write that down.
	Scores []float64
	Next   float64
	// Asked says that it got SIGTERM.
	Asked bool
	// Ended says that it was about to exit, with Code.
	Ended bool
	Code  int
	// Answer says that it wrote its answer completely.
	Answer bool
	// Meddler could have ended it.
	Meddler meddler
	// Erased says that the fault destroyed the place where the result belongs, Torn that it damaged
	// a file there.
	Erased, Torn bool
	// Graceful says that whoever asked it to end owes it its grace.
	Graceful bool
	// Contention is how the processors were shared, if that is known: see the result's resources.
	Contention string
}

// byItself reports whether the end of the program is known and its own.
func (t truth) byItself() bool { return t.Ended && !t.Asked }

// seen is what is left of a run after its controller ended and others cleaned up.
type seen struct {
	// Result is the one on disk; nil if there is none. Printed is the one that the
	// controller printed.
	Result, Printed *result.Result
	// Answer says that the outputs in the result have the answer of the program.
	Answer bool
	// Hung says that a controller did not end in its time.
	Hung bool
	// Killed says that the controller was killed, ExitCode is its exit code if it was not.
	Killed   bool
	ExitCode int
	// Left lists what should not be there any more; Harmed what others would miss.
	Left, Harmed []string
	// Contention is the verdict in the result.
	Contention string
	// Stuck lists the commands that fail again and again. Wrong lists what else was said and did not
	// happen.
	Stuck, Wrong []string
}

// A verdict is the judgment about one run.
type verdict int

const (
	// exact: what is said is what happened, or, where nobody can know the end, just that.
	exact verdict = iota
	// partial: the end is right, and the result says that output is missing.
	partial
	// lost: the end is known to the program or its init, and the result does not know it.
	lost
	// absent: a run that ended by itself has no result.
	absent
	// hung: the controller did not end.
	hung
	// stuck: a command fails for ever.
	stuck
	// lie: the result says what did not happen.
	lie
)

var verdictNames = []string{exact: "exact", partial: "partial", lost: "lost", absent: "absent", hung: "hung", stuck: "stuck", lie: "FALSE"}

func (v verdict) String() string { return verdictNames[v] }

// judgment is a verdict with its reason. Unknowable says that nobody could know the end of
// the program.
type judgment struct {
	verdict
	Why        string
	Unknowable bool
}

// judge compares what is said with what happened. It is pure.
func judge(t truth, s seen) judgment {
	switch {
	case s.Hung:
		return judgment{hung, "the controller did not end in time", false}
	case len(s.Wrong) > 0:
		return judgment{lie, strings.Join(s.Wrong, "; "), false}
	case len(s.Stuck) > 0:
		return judgment{stuck, strings.Join(s.Stuck, "; "), false}
	case t.Starts > 1:
		return judgment{lie, fmt.Sprintf("the program ran %d times", t.Starts), false}
	case s.Result != nil && s.Printed != nil && !alike(s.Result, s.Printed):
		return judgment{lie, fmt.Sprintf("printed %s, recorded %s", brief(s.Printed), brief(s.Result)), false}
	}
	res := s.Result
	if res == nil {
		res = s.Printed
	}
	switch {
	case t.Starts == 0:
		return judgeUnstarted(t, s, res)
	case res == nil && (t.Erased || t.Torn):
		return judgment{exact, "its record was deleted, or damaged", true}
	case res != nil && t.Torn && res.Status == result.StatusEngineLost && !res.Conclusive():
		return judgment{exact, "its record was damaged", true}
	case res == nil && t.byItself():
		return judgment{absent, fmt.Sprintf("it ended with %d and there is no result", t.Code), false}
	case res == nil && !s.Killed && s.ExitCode != 0:
		return judgment{exact, "an error, and nobody knows the end", true}
	case res == nil:
		return judgment{absent, "it ran and there is no result", true}
	}
	if why := cmp.Or(checkScore(t, res), checkGrace(t, s), checkContention(t, s)); why != "" {
		return judgment{lie, why, false}
	}
	if t.byItself() {
		return judgeOwnEnd(t, s, res)
	}
	return judgeMeddled(t, res)
}

// alike reports whether two results tell the same end.
func alike(a, b *result.Result) bool {
	return a.Status == b.Status && a.Fault == b.Fault && a.ExitCode == b.ExitCode
}

func brief(res *result.Result) string {
	if res == nil {
		return "no result"
	}
	score := "no score"
	if res.Score != nil {
		score = fmt.Sprintf("score %g", *res.Score)
	}
	return fmt.Sprintf("%s/%s %d %s", res.Status, res.Fault, res.ExitCode, score)
}

// judgeUnstarted judges a run whose program never ran.
func judgeUnstarted(t truth, s seen, res *result.Result) judgment {
	switch {
	case res == nil && !s.Killed && s.ExitCode == 0:
		return judgment{lie, "nothing ran, and the exit code is 0", false}
	case res == nil:
		return judgment{exact, "nothing ran", false}
	}
	if t.Meddler == theMachine && res.Status == result.StatusExited && res.ExitCode == witnessFailed {
		return judgment{exact, "it could not write down that it runs", true}
	}
	switch res.Status {
	case result.StatusStartFailed, result.StatusCanceled:
		return judgment{exact, "nothing ran", false}
	case result.StatusEngineLost:
		return judgment{exact, "it was asked to run, and nobody can know whether it did", true}
	default:
	}
	return judgment{lie, "nothing ran, said: " + brief(res), false}
}

// checkScore finds a score that the program never printed, or that was not its last one
// although it ended by itself.
func checkScore(t truth, res *result.Result) string {
	switch {
	case res.Score == nil:
		return ""
	case !slices.Contains(t.Scores, *res.Score) && !(t.Meddler != nobody && *res.Score == t.Next):
		return fmt.Sprintf("score %g was never printed", *res.Score)
	case t.byItself() && *res.Score != t.Scores[len(t.Scores)-1]:
		return fmt.Sprintf("score %g is not the last one", *res.Score)
	}
	return ""
}

// checkGrace finds a program that was ended at once although it had time to end, or whose last words
// were not heard.
func checkGrace(t truth, s seen) string {
	switch {
	case t.Graceful && !t.Ended:
		return "the program did not get its grace"
	case t.Graceful && t.Asked && t.Answer && !s.Answer:
		return "what it left in its grace is not among the outputs"
	}
	return ""
}

// checkContention compares only what starved: a program that sleeps can lack a twentieth of its time
// for its start, and is rightly busy.
func checkContention(t truth, s seen) string {
	const starved = string(result.Starved)
	if t.Contention != "" && (s.Contention == "" || (t.Contention == starved) != (s.Contention == starved)) {
		return fmt.Sprintf("the processors were %s, said: %q", t.Contention, s.Contention)
	}
	return ""
}

// judgeOwnEnd judges the result of a program that ended by itself.
func judgeOwnEnd(t truth, s seen, res *result.Result) judgment {
	switch {
	case res.Status == result.StatusExited && res.ExitCode == t.Code:
	case res.Status == result.StatusCanceled && t.Meddler == theCaller:
		return judgment{exact, "the caller canceled while it ended", false}
	case res.Status == result.StatusEngineLost && t.Meddler != nobody && t.Meddler != theCaller:
		// It was about to exit, but the end came from elsewhere just then.
		return judgment{lost, "it ended with " + fmt.Sprint(t.Code) + " in time", false}
	case res.Status == result.StatusEngineLost:
		return judgment{lost, fmt.Sprintf("it ended with %d: %s", t.Code, res.Explanation), false}
	case t.Meddler == theMachine && res.Status == result.StatusDiskLimit && res.Fault == result.FaultEnvironment:
		return judgment{exact, "the disk was full", false}
	default:
		return judgment{lie, fmt.Sprintf("it ended with %d, said: %s", t.Code, brief(res)), false}
	}
	wanted := result.FaultProgram
	if t.Code == 0 {
		wanted = result.FaultNone
	}
	switch {
	case !res.OutputComplete && res.Fault == result.FaultEnvironment:
		return judgment{partial, "the output is incomplete, which nobody can judge", false}
	case res.Fault != wanted:
		return judgment{lie, fmt.Sprintf("it ended with %d, blamed: %s", t.Code, res.Fault), false}
	case res.OutputComplete && (res.Score == nil || *res.Score != t.Scores[len(t.Scores)-1]):
		return judgment{lie, "the output is called complete, but lacks the score", false}
	case !res.OutputComplete:
		return judgment{partial, "the output is incomplete, and so the score is not known", false}
	case t.Answer && !s.Answer && t.Meddler != theMachine:
		return judgment{lie, "its answer is not among the outputs", false}
	}
	return judgment{exact, "", false}
}

// judgeMeddled judges the result of a program that did not end by itself: somebody ended it,
// or it ended after a request to do so.
func judgeMeddled(t truth, res *result.Result) judgment {
	said := judgment{lie, fmt.Sprintf("it did not end by itself, said: %s", brief(res)), false}
	status, fault := res.Status, res.Fault
	switch t.Meddler {
	case nobody:
		if status == result.StatusTimedOut {
			return judgment{exact, "it was still running at its time limit", false}
		}
	case theCaller:
		if status == result.StatusCanceled {
			return judgment{exact, "", false}
		}
	case theEngine:
		if status == result.StatusEngineLost && fault == result.FaultEnvironment {
			return judgment{exact, "the engine ended it", true}
		}
	case anOperator, operatorTerm, operatorKill:
		asked := status == result.StatusSignaled && t.Meddler != operatorKill
		killed := status == result.StatusEngineLost && t.Meddler != operatorTerm
		if fault == result.FaultOperator && (asked || killed) {
			return judgment{exact, "", killed}
		}
	case aNeighbor:
		switch {
		case status == result.StatusSignaled && fault == result.FaultOperator:
			return judgment{exact, "", false}
		case status == result.StatusEngineLost && !res.Conclusive():
			return judgment{exact, "the engine did not send the signal", true}
		}
	case aPauser:
		ended := status == result.StatusTimedOut || status == result.StatusSignaled || status == result.StatusCanceled
		if ended && fault == result.FaultOperator {
			return judgment{exact, "", false}
		}
	case theCrowd:
		if status == result.StatusTimedOut && !res.Conclusive() && len(res.Warnings) > 0 {
			return judgment{exact, "", false}
		}
	case theMachine:
		if fault == result.FaultEnvironment || status == result.StatusExited && res.ExitCode == witnessFailed {
			return judgment{exact, "", true}
		}
	}
	return said
}

// witnessFailed is the exit code of a witness that could not do its work.
const witnessFailed = 99
