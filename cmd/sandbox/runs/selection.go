package runs

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
)

// statuses are the values of --status, with descriptions.
func statuses() []cobra.Completion {
	all := []cobra.Completion{
		cobra.CompletionWithDesc(string(record.Running), "it has not ended"),
		cobra.CompletionWithDesc(string(record.Lost), "its own process died, and nobody finished it"),
		cobra.CompletionWithDesc(string(record.Unreadable), "its record is damaged, and nobody can finish it"),
		cobra.CompletionWithDesc(record.AnySuccess, "the program exited with 0; of a contract: success"),
		cobra.CompletionWithDesc(record.AnyFailure, "it ended in any other way"),
	}
	for _, s := range result.Statuses() {
		all = append(all, s.String())
	}
	return all
}

// selection picks runs by how they ended, by name, label and time.
type selection struct{ record.Filter }

// register adds the flags to a command.
func (s *selection) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(cli.List(&s.Status, "list", cli.Each(readStatus)), "status", "only these: running, lost, unreadable, succeeded, failed, or a status such as timed_out; with commas between them")
	flags.StringVar(&s.Name, "name", "", "only runs whose name matches `glob`, such as 'train*'")
	flags.StringArrayVarP(&s.Labels, "label", "l", nil, "only runs with label `NAME[=VALUE]`; repeated: with all of them")
	cli.Choices(cmd, "status", statuses()...)
}

// check returns the first problem of the flags.
func (s *selection) check(cmd *cobra.Command) error {
	_, err := path.Match(s.Name, "")
	return cli.Check(cmd, cli.Wrong(err != nil, "--name %q: is not a pattern", s.Name))
}

func readStatus(text string) (string, error) {
	if slices.Contains(record.StatusNames(), text) {
		return text, nil
	}
	return "", errors.New("must be running, lost, unreadable, succeeded, failed, or a status of a result: " + strings.Join(resultStatuses(), ", "))
}

func resultStatuses() (names []string) {
	for _, s := range result.Statuses() {
		names = append(names, s.String())
	}
	return names
}

// matches reports whether a run is selected; c is its contract, nil for none.
func (s *selection) matches(each record.Record, c *contract.Recorded) bool {
	return s.Matches(each, c.Succeeded(each))
}

// readAge reads a duration as settings do, and also days and weeks, such as 30d or 2w.
func readAge(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	for suffix, unit := range map[string]time.Duration{"d": day, "w": 7 * day} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			n, err := strconv.ParseUint(number, 10, 32)
			if err != nil || n > 36500 {
				return 0, errors.New("must be a duration, such as 90s, 12h, 30d or 2w")
			}
			return time.Duration(n) * unit, nil
		}
	}
	age, err := settings.ReadDuration(text)
	switch {
	case err != nil:
		return 0, errors.New("must be a duration, such as 90s, 12h, 30d or 2w")
	case age < 0:
		return 0, errors.New("must not be negative")
	}
	return age, nil
}

// ReadSince reads a time, or an age before now, as --since does.
func ReadSince(text string) (time.Time, error) { return readSince(time.Now())(text) }

// readSince reads a time, or an age before now. A time without a zone is a local one.
func readSince(now time.Time) func(text string) (time.Time, error) {
	return func(text string) (time.Time, error) {
		if age, err := readAge(text); err == nil {
			return now.Add(-age), nil
		}
		for _, form := range []string{time.RFC3339, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
			if at, err := time.ParseInLocation(form, text, time.Local); err == nil {
				return at, nil
			}
		}
		return time.Time{}, errors.New("must be a duration, such as 1h or 7d, or a time, such as 2026-01-02 or \"2026-01-02 15:04\"")
	}
}

// sinceFlag is a flag that [readSince] reads.
func sinceFlag(target *time.Time) pflag.Value {
	var given *time.Time
	read := readSince(time.Now())
	return cli.Optional(&given, "duration|time", func(text string) (time.Time, error) {
		at, err := read(text)
		*target = at
		return at, err
	})
}

// readCount reads a number of runs or lines.
func readCount(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, errors.New("must be a number, such as 20")
	}
	return n, nil
}
