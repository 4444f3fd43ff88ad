package evaluate

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// SolutionPhase says which step of a search made a script (DM-008).
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

// UnmarshalText refuses a name that is no phase.
func (p *SolutionPhase) UnmarshalText(text []byte) error {
	return readName(p, "phase", SolutionPhases(), text)
}

// SolutionScript is one candidate program (DM-009). It is the only type of this
// package whose owner is meant to change it: after an evaluation it is the caller
// who sets Score and IsExecutable (EX-016). The functions here take it by value
// and never change what it points to.
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

// NewSolution makes a script that was not evaluated yet: executable until shown
// otherwise, and created now (UTC).
func NewSolution(content string, phase SolutionPhase) SolutionScript {
	return SolutionScript{Content: content, Phase: phase, IsExecutable: true, CreatedAt: time.Now().UTC()}
}

// SHA256 is the hash of the content, in hexadecimal.
func (s SolutionScript) SHA256() string { return hashText(s.Content) }

// ErrBlockNotFound means that a block to be replaced is not in the script.
var ErrBlockNotFound = errors.New("the block is not in the script")

// ReplaceBlock returns a copy of s in which the first occurrence of old is
// replaced (DM-010); all else stays as it is. Text is compared exactly, line ends
// included. An empty old stands before the first character. When old does not
// occur, the error is [ErrBlockNotFound].
func (s SolutionScript) ReplaceBlock(old, replacement string) (SolutionScript, error) {
	if !strings.Contains(s.Content, old) {
		return SolutionScript{}, fmt.Errorf("%w: %s", ErrBlockNotFound, shown(old))
	}
	s.Content = strings.Replace(s.Content, old, replacement, 1)
	return s, nil
}
