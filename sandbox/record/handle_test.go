package record_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/record"
)

func TestResolve(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 2, 15, minute, 0, 0, time.UTC) }
	runs := []record.Known{
		{ID: "20260102t150300-00aa11bb22", Created: at(3), Name: "crash"},
		{ID: "20260102t150100-1a2b3c4d5e", Created: at(1), Name: "train"},
		{ID: "20260102t150200-1a2b3fffff", Created: at(2), Name: "crash"},
		{ID: "mine", Created: at(0), Name: "20260102t1503"},
		{ID: "mine-2", Created: at(4), Name: "1a2b3c4d5e"},
		{ID: "train-1", Created: at(5)},
		{ID: "last-one", Created: at(6), Name: "last"},
	}
	const newest, train = "last-one", "20260102t150100-1a2b3c4d5e"
	for handle, want := range map[string]string{
		train:   train,
		"mine":  "mine", // though another ID begins with it
		"last":  newest, // though a run has this name
		"-1":    newest,
		"~1":    newest,
		"-2":    "train-1",
		"-7":    "mine",
		"train": train, // a name, though an ID begins with it
		// A name comes before a part of an ID.
		"20260102t1503":     "mine",
		"1a2b3c4d5e":        "mine-2",
		"20260102t1501":     train,
		"20260102t150200-1": "20260102t150200-1a2b3fffff",
		"1a2b3c":            train,
		"1a2b3f":            "20260102t150200-1a2b3fffff",
		"00":                "20260102t150300-00aa11bb22",
		"2b3c":              train, // a part of the random end
		"bb22":              "20260102t150300-00aa11bb22",
		"mine-":             "mine-2",
	} {
		got, err := record.Resolve(handle, runs)
		require.NoError(t, err, handle)
		require.Equal(t, want, got, handle)
	}
	for handle, want := range map[string]string{
		"nosuch": `run "nosuch": no such run`,
		"b22":    `run "b22": no such run`, // too short for a part in the middle
		"0300":   `run "0300": no such run`,
		"-8":     `run "-8": no such run: only 7 are recorded`,
		"~8":     `run "-8": no such run: only 7 are recorded`,
	} {
		_, err := record.Resolve(handle, runs)
		require.ErrorIs(t, err, record.ErrNoRecord, handle)
		require.EqualError(t, err, want)
	}
	for _, handle := range []string{"", "-0", "-", "../x", "a/b", "-x", "-9999999999", "a\x1b"} {
		_, err := record.Resolve(handle, runs)
		require.ErrorAs(t, err, new(*policy.FieldError), handle)
	}
	_, err := record.Resolve("last", nil)
	require.ErrorIs(t, err, record.ErrNoRecord)
	require.EqualError(t, err, "no run is recorded yet")
}

// A handle of several runs lists some of them, the newest first.
func TestAmbiguousHandle(t *testing.T) {
	var runs []record.Known
	for i := range 7 {
		runs = append(runs, record.Known{ID: fmt.Sprintf("r%d", i), Name: "same", Created: time.Unix(int64(i), 0), Status: "exited"})
	}
	for _, handle := range []string{"same", "r"} {
		_, err := record.Resolve(handle, runs)
		several := new(record.AmbiguousError)
		require.ErrorAs(t, err, &several)
		require.Len(t, several.Matches, 7)
		require.Regexp(t, `^run "`+handle+`": matches 7 runs:\nr6  \S+ \S+  exited  same\nr5 (.*\n){4}and 2 more$`, err.Error())
	}
	first, err := record.Resolve("-1", append(runs, record.Known{ID: "r9", Created: time.Unix(6, 0)}))
	require.NoError(t, err)
	require.Equal(t, "r9", first, "of one moment, the last in the order of IDs")
}
