package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
)

// said makes a result with a whole output; the score is 0.585 unless it is 0.
func said(status result.Status, fault result.Fault, code int, score float64) *result.Result {
	res := &result.Result{Status: status, Fault: fault, ExitCode: code, OutputComplete: true, Explanation: "so."}
	if score != 0 {
		res.Score = &score
	}
	return res
}

func incomplete(res *result.Result) *result.Result {
	res.OutputComplete = false
	return res
}

// TestJudge: every kind of truth with what may be said of it, and what may not.
func TestJudge(t *testing.T) {
	scores := []float64{0.222, 0.585}
	well := truth{Starts: 1, Scores: scores, Ended: true, Answer: true}
	ill := truth{Starts: 1, Scores: scores, Ended: true, Code: 3, Answer: true}
	killed := func(by meddler) truth { return truth{Starts: 1, Scores: scores[:1], Meddler: by} }
	polite := func(by meddler) truth {
		return truth{Starts: 1, Scores: scores[:1], Asked: true, Ended: true, Meddler: by}
	}
	exited := said(result.StatusExited, result.FaultNone, 0, 0.585)
	engineLost := incomplete(said(result.StatusEngineLost, result.FaultEnvironment, -1, 0))
	byOperator := incomplete(said(result.StatusEngineLost, result.FaultOperator, -1, 0))
	canceled := said(result.StatusCanceled, result.FaultOperator, 143, 0.222)
	warned := func(res *result.Result) *result.Result {
		res.Warnings = []string{"its processors were taken"}
		return res
	}
	timedOut := func(fault result.Fault) *result.Result { return said(result.StatusTimedOut, fault, -1, 0.222) }
	signaled := said(result.StatusSignaled, result.FaultOperator, 143, 0.222)
	graceful := truth{Starts: 1, Scores: scores[:1], Asked: true, Ended: true, Answer: true, Meddler: theCaller, Graceful: true}
	crowded := truth{Starts: 1, Scores: scores[:1], Meddler: theCrowd, Contention: "starved"}
	quiet := well
	quiet.Contention = "quiet"
	torn := well
	torn.Torn = true
	for name, c := range map[string]struct {
		truth      truth
		seen       seen
		want       verdict
		unknowable bool
	}{
		"right":                             {well, seen{Result: exited, Answer: true}, exact, false},
		"right, with a failure":             {ill, seen{Result: said(result.StatusExited, result.FaultProgram, 3, 0.585), Answer: true}, exact, false},
		"wrong code":                        {ill, seen{Result: exited, Answer: true}, lie, false},
		"wrong fault":                       {ill, seen{Result: said(result.StatusExited, result.FaultOperator, 3, 0.585), Answer: true}, lie, false},
		"a score that was only seen":        {well, seen{Result: said(result.StatusExited, result.FaultNone, 0, 0.222), Answer: true}, lie, false},
		"a score of nobody":                 {well, seen{Result: said(result.StatusExited, result.FaultNone, 0, 0.9), Answer: true}, lie, false},
		"no score of a whole output":        {well, seen{Result: said(result.StatusExited, result.FaultNone, 0, 0), Answer: true}, lie, false},
		"no score of a part":                {well, seen{Result: incomplete(said(result.StatusExited, result.FaultNone, 0, 0)), Answer: true}, partial, false},
		"the environment took a part":       {well, seen{Result: incomplete(said(result.StatusExited, result.FaultEnvironment, 0, 0)), Answer: true}, partial, false},
		"an output is missing":              {well, seen{Result: exited}, lie, false},
		"the end is known, and lost":        {well, seen{Result: engineLost}, lost, false},
		"no result":                         {well, seen{Killed: true}, absent, false},
		"two ends":                          {well, seen{Result: exited, Printed: engineLost, Answer: true}, lie, false},
		"two runs":                          {truth{Starts: 2, Scores: scores, Ended: true}, seen{Result: exited}, lie, false},
		"does not end":                      {well, seen{Hung: true}, hung, false},
		"canceled just then":                {truth{Starts: 1, Scores: scores, Ended: true, Meddler: theCaller}, seen{Result: said(result.StatusCanceled, result.FaultOperator, 0, 0.585)}, exact, false},
		"canceled before it wrote down":     {truth{Starts: 1, Next: 0.222, Meddler: theCaller}, seen{Result: canceled}, exact, false},
		"canceled by nobody":                {well, seen{Result: canceled}, lie, false},
		"canceled":                          {killed(theCaller), seen{Result: canceled}, exact, false},
		"canceled, but blamed":              {killed(theCaller), seen{Result: said(result.StatusSignaled, result.FaultProgram, 143, 0)}, lie, false},
		"the engine ended it":               {killed(theEngine), seen{Result: engineLost}, exact, true},
		"the engine ended it, but blamed":   {killed(theEngine), seen{Result: said(result.StatusSignaled, result.FaultProgram, 137, 0)}, lie, false},
		"the engine asked, and it was nice": {polite(theEngine), seen{Result: said(result.StatusExited, result.FaultNone, 0, 0.222)}, lie, false},
		"the engine asked":                  {polite(theEngine), seen{Result: engineLost}, exact, true},
		"an operator":                       {killed(anOperator), seen{Result: byOperator}, exact, true},
		"an operator, known":                {polite(anOperator), seen{Result: said(result.StatusSignaled, result.FaultOperator, 143, 0.222)}, exact, false},
		"an operator, but the engine":       {killed(anOperator), seen{Result: engineLost}, lie, false},
		"nobody":                            {killed(nobody), seen{Result: engineLost}, lie, false},
		"nothing ran":                       {truth{}, seen{ExitCode: 125}, exact, false},
		"nothing ran, and says ok":          {truth{}, seen{}, lie, false},
		"nothing ran, but ended":            {truth{}, seen{Result: exited}, lie, false},
		"nothing ran, nobody knows":         {truth{}, seen{Result: engineLost, ExitCode: 125}, exact, true},
		"record deleted":                    {truth{Starts: 1, Ended: true, Scores: scores, Erased: true}, seen{Killed: true}, exact, true},
		"its time limit":                    {killed(nobody), seen{Result: timedOut(result.FaultProgram)}, exact, false},
		"in time, but said to be late":      {well, seen{Result: timedOut(result.FaultProgram), Answer: true}, lie, false},
		"SIGTERM":                           {killed(operatorTerm), seen{Result: signaled}, exact, false},
		"SIGTERM, and it was nice":          {polite(operatorTerm), seen{Result: signaled}, exact, false},
		"SIGTERM, and nobody heard":         {killed(operatorTerm), seen{Result: byOperator}, lie, false},
		"SIGTERM, but the time limit":       {killed(operatorTerm), seen{Result: timedOut(result.FaultProgram)}, lie, false},
		"SIGTERM, but an own end":           {polite(operatorTerm), seen{Result: said(result.StatusExited, result.FaultNone, 0, 0.222)}, lie, false},
		"SIGKILL":                           {killed(operatorKill), seen{Result: byOperator}, exact, true},
		"SIGKILL, but heard":                {killed(operatorKill), seen{Result: signaled}, lie, false},
		"SIGKILL, but the engine":           {killed(operatorKill), seen{Result: engineLost}, lie, false},
		"SIGKILL, but the time limit":       {killed(operatorKill), seen{Result: timedOut(result.FaultProgram)}, lie, false},
		"a neighbor":                        {killed(aNeighbor), seen{Result: signaled}, exact, false},
		"a neighbor, unseen":                {killed(aNeighbor), seen{Result: byOperator}, exact, true},
		"a neighbor, the engine":            {killed(aNeighbor), seen{Result: engineLost}, exact, true},
		"a neighbor, but the time limit":    {killed(aNeighbor), seen{Result: timedOut(result.FaultProgram)}, lie, false},
		"a neighbor, but the program":       {killed(aNeighbor), seen{Result: said(result.StatusSignaled, result.FaultProgram, 137, 0.222)}, lie, false},
		"paused":                            {killed(aPauser), seen{Result: timedOut(result.FaultOperator)}, exact, false},
		"paused, and asked":                 {polite(aPauser), seen{Result: canceled}, exact, false},
		"paused, but blamed":                {killed(aPauser), seen{Result: timedOut(result.FaultProgram)}, lie, false},
		"paused, but lost":                  {killed(aPauser), seen{Result: byOperator}, lie, false},
		"paused, and ended in time":         {well, seen{Result: exited, Answer: true}, exact, false},
		"its grace":                         {graceful, seen{Result: canceled, Answer: true}, exact, false},
		"its grace, and not its last words": {graceful, seen{Result: canceled}, lie, false},
		"no grace":                          {truth{Starts: 1, Scores: scores[:1], Meddler: theCaller, Graceful: true}, seen{Result: canceled}, lie, false},
		"no grace for what never ran":       {truth{Meddler: theCaller, Graceful: true}, seen{ExitCode: 130}, exact, false},
		"starved":                           {crowded, seen{Result: warned(timedOut(result.FaultEnvironment)), Contention: "starved"}, exact, false},
		"starved, but blamed":               {crowded, seen{Result: warned(timedOut(result.FaultProgram)), Contention: "starved"}, lie, false},
		"starved, without a warning":        {crowded, seen{Result: timedOut(result.FaultEnvironment), Contention: "starved"}, lie, false},
		"starved, said to be busy":          {crowded, seen{Result: warned(timedOut(result.FaultEnvironment)), Contention: "busy"}, lie, false},
		"quiet":                             {quiet, seen{Result: exited, Answer: true, Contention: "quiet"}, exact, false},
		"quiet, said to be busy":            {quiet, seen{Result: exited, Answer: true, Contention: "busy"}, exact, false},
		"quiet, said to be starved":         {quiet, seen{Result: exited, Answer: true, Contention: "starved"}, lie, false},
		"quiet, and nothing said":           {quiet, seen{Result: exited, Answer: true}, lie, false},
		"torn":                              {torn, seen{Killed: true}, exact, true},
		"torn, and lost":                    {torn, seen{Result: engineLost, Killed: true}, exact, true},
		"torn, and known":                   {torn, seen{Result: exited, Answer: true, Killed: true}, exact, false},
		"torn, but blamed":                  {torn, seen{Result: said(result.StatusExited, result.FaultProgram, 1, 0.585), Killed: true}, lie, false},
		"a command fails for ever":          {well, seen{Result: exited, Answer: true, Stuck: []string{"gc failed"}}, stuck, false},
		"something else was false":          {well, seen{Result: exited, Answer: true, Wrong: []string{"another run"}, Stuck: []string{"gc failed"}}, lie, false},
		"a full disk":                       {truth{Meddler: theMachine}, seen{Result: said(result.StatusExited, result.FaultProgram, witnessFailed, 0)}, exact, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := judge(c.truth, c.seen)
			require.Equal(t, c.want.String(), got.verdict.String(), got.Why)
			require.Equal(t, c.unknowable, got.Unknowable)
		})
	}
}
