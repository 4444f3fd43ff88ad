package testlog

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// MaxCases is how many cases of one command are kept. All are counted.
const MaxCases = 20_000

const (
	// maxName bounds an ID, a suite and a name, in bytes; maxMessage what a case said.
	maxName    = 1000
	maxMessage = 2 << 10
)

// keeper counts cases and keeps the first ones. A case that did not pass takes the place
// of one that did: it matters more.
type keeper struct {
	counts  evidence.Counts
	cases   []evidence.Case
	passing []int // places in cases
	dropped int
}

func (k *keeper) add(c evidence.Case) {
	k.counts.Add(c.Outcome)
	c.ID, c.Suite, c.Name = name(c.ID), name(c.Suite), name(c.Name)
	c.Message = clip(c.Message, maxMessage)
	if c.Outcome == evidence.Passed {
		c.Message = ""
	}
	if len(k.cases) < MaxCases {
		if c.Outcome == evidence.Passed {
			k.passing = append(k.passing, len(k.cases))
		}
		k.cases = append(k.cases, c)
		return
	}
	k.dropped++
	if last := len(k.passing) - 1; c.Outcome != evidence.Passed && last >= 0 {
		k.cases[k.passing[last]] = c
		k.passing = k.passing[:last]
	}
}

func (k *keeper) report(source evidence.ReportFormat) Report {
	return Report{Source: source, Cases: k.cases, Counts: k.counts, Dropped: k.dropped}
}

// name is a name as one line of text. A longer one keeps its beginning, and a hash that
// tells it from others.
func name(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
	if len(s) <= maxName {
		return strings.Clone(s)
	}
	sum := sha256.Sum256([]byte(s))
	return clip(s, maxName) + "#" + hex.EncodeToString(sum[:8])
}

// clip is the beginning of a text, with an ellipsis if it goes on.
func clip(s string, most int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= most {
		return strings.Clone(s)
	}
	end := most
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// head is text of which only the beginning is kept.
type head struct{ text []byte }

func (h *head) add(s string) {
	if room := maxMessage + utf8.UTFMax - len(h.text); room > 0 {
		h.text = append(h.text, s[:min(room, len(s))]...)
	}
}

func (h *head) String() string { return strings.TrimSpace(string(h.text)) }
