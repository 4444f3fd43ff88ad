package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestRunCompletions(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	recorded := func(id, name string, age time.Duration) record.Record {
		return record.Record{ID: id, State: record.Running, Created: now.Add(-age), Spec: spec.Spec{Job: spec.Job{Name: name}}}
	}
	records := []record.Record{
		recorded("20260101t1-a", "twice", 3*time.Hour), recorded("20260101t2-b", "twice", 2*time.Hour),
		recorded("20260102t3-c", "once", time.Minute), recorded("20260102t4-d", "", 0),
	}
	tests := map[string]struct {
		word  string
		given []string
		want  []cobra.Completion
	}{
		"newest first": {"2026", nil, []cobra.Completion{
			"20260102t4-d\trunning · 0s ago", "20260102t3-c\tonce · running · 1m ago",
			"20260101t2-b\ttwice · running · 2h ago", "20260101t1-a\ttwice · running · 3h ago",
		}},
		"a unique name":       {"o", nil, []cobra.Completion{"once\t20260102t3-c · running · 1m ago"}},
		"a name of two runs":  {"tw", nil, nil},
		"one is named before": {"20260102", []string{"once"}, []cobra.Completion{"20260102t4-d\trunning · 0s ago"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, runCompletions(records, tt.given, tt.word, now))
		})
	}

	records = nil
	for i := range 60 {
		records = append(records, recorded(fmt.Sprintf("r%02d", i), "bad\x1b[2Jname", 0))
	}
	most := runCompletions(records, nil, "", now)
	require.Len(t, most, maxRuns)
	require.True(t, strings.HasPrefix(most[0], "r59\t"), most[0])
	require.NotContains(t, strings.Join(most, ""), "\x1b")
}

// Every value that is completed is one that the setting takes.
func TestCompletedWordsAreAccepted(t *testing.T) {
	for key, values := range words {
		for _, value := range values {
			word, _, _ := strings.Cut(value, "\t")
			_, err := settings.Load("", settings.Flags{key: settings.Flag{Text: word, Name: "--" + key}})
			require.NoError(t, err, "%s: %s", key, word)
		}
	}
}
