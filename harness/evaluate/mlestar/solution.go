package mlestar

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// SolutionPhase is the step of a search that created a script (DM-008).
type SolutionPhase string

// The phases of a search.
const (
	PhaseInit     SolutionPhase = "init"
	PhaseMerged   SolutionPhase = "merged"
	PhaseRefined  SolutionPhase = "refined"
	PhaseEnsemble SolutionPhase = "ensemble"
	PhaseFinal    SolutionPhase = "final"
)

// SolutionPhases returns all phases in the order of a search.
func SolutionPhases() []SolutionPhase {
	return []SolutionPhase{PhaseInit, PhaseMerged, PhaseRefined, PhaseEnsemble, PhaseFinal}
}

// UnmarshalText refuses a name that is not a phase.
func (p *SolutionPhase) UnmarshalText(name []byte) error {
	if *p = SolutionPhase(name); !slices.Contains(SolutionPhases(), *p) {
		return &policy.FieldError{Field: "phase", Value: text.Quote(string(name), 80), Rule: "must be one of " + text.List(SolutionPhases())}
	}
	return nil
}

// SolutionScript is one candidate program (DM-009). After an evaluation its owner sets Score
// and IsExecutable (EX-016); the functions of this module take it by value and do not change
// what it points to.
type SolutionScript struct {
	// Content is the program: Python, UTF-8.
	Content string        `json:"content"`
	Phase   SolutionPhase `json:"phase"`
	// Score is nil until the script was evaluated, or when it has none.
	Score        *float64 `json:"score"`
	IsExecutable bool     `json:"is_executable"`
	// SourceModel names the model that the script uses; nil when unknown.
	SourceModel *string   `json:"source_model"`
	CreatedAt   time.Time `json:"created_at"`
}

// NewSolution returns a script that was not evaluated yet: executable until shown otherwise,
// and created now (UTC).
func NewSolution(content string, phase SolutionPhase) SolutionScript {
	return SolutionScript{Content: content, Phase: phase, IsExecutable: true, CreatedAt: time.Now().UTC()}
}

// ErrBlockNotFound means that the block to be replaced is not in the script.
var ErrBlockNotFound = errors.New("the block is not in the script")

// ReplaceBlock returns a copy of s in which the first occurrence of old is replaced (DM-010).
// Text is compared exactly, line ends included. An empty old stands before the first
// character. When old does not occur, the error is [ErrBlockNotFound].
func (s SolutionScript) ReplaceBlock(old, replacement string) (SolutionScript, error) {
	if !strings.Contains(s.Content, old) {
		return SolutionScript{}, fmt.Errorf("%w: %s", ErrBlockNotFound, text.Quote(old, 80))
	}
	s.Content = strings.Replace(s.Content, old, replacement, 1)
	return s, nil
}

// SubsampleInstruction asks an agent to shorten runs while it refines a script (EX-017), with
// two places for the limit.
const SubsampleInstruction = "If there are more than {limit} training samples, you must subsample to {limit} for a faster run."

// SubsampleInstructionFor fills in the limit of a config (EX-018).
func SubsampleInstructionFor(config PipelineConfig) string {
	return strings.ReplaceAll(SubsampleInstruction, "{limit}", strconv.Itoa(config.SubsampleLimit))
}

// SubsampleRemovalRequest asks an agent to remove the code that [SubsampleInstruction] added,
// before the final run (EX-019). It contains the whole script, unchanged.
func SubsampleRemovalRequest(solution SolutionScript) string {
	return "Find all code in the following Python script that subsamples the training data, and remove it, " +
		"so that the script trains on all samples. Keep everything else as it is. Return the full script.\n\n" +
		fenced(solution.Content)
}

// SubsampleExtractionRequest asks an agent for the block of code that subsamples (EX-020). It
// contains the whole script, unchanged.
func SubsampleExtractionRequest(solution SolutionScript) string {
	return "Identify the block of code in the following Python script that performs the subsampling of the training " +
		"data, and extract it. Return that block exactly as it stands in the script, and nothing else.\n\n" +
		fenced(solution.Content)
}

// fenced returns a Markdown code block. Its fence is longer than any row of backticks in the
// script, which could otherwise end the block.
func fenced(script string) string {
	longest, row := 2, 0
	for _, c := range script {
		if row++; c != '`' {
			row = 0
		}
		longest = max(longest, row)
	}
	fence := strings.Repeat("`", longest+1)
	return fmt.Sprintf("%spython\n%s\n%s", fence, script, fence)
}
