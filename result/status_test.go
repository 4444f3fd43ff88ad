package result

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatusNames(t *testing.T) {
	want := []string{
		"exited", "signaled", "timed_out", "out_of_memory", "disk_limit",
		"output_limit", "canceled", "start_failed", "engine_lost", "stopped_by_rule",
	}
	var got []string
	for _, s := range Statuses() {
		got = append(got, s.String())
	}
	require.Equal(t, want, got)
}

func TestFaultNames(t *testing.T) {
	var got []string
	for _, f := range Faults() {
		got = append(got, f.String())
	}
	require.Equal(t, []string{"none", "program", "environment", "operator"}, got)
}

// Walking all 256 values finds a constant that was added without a name, and
// a name that was added without being listed.
func TestEveryEnumValueIsNamedOrRefused(t *testing.T) {
	for i := range 256 {
		checkEnumValue(t, Status(i), Statuses(), "status(")
		checkEnumValue(t, Fault(i), Faults(), "fault(")
	}
}

func checkEnumValue[E interface {
	~uint8
	fmt.Stringer
}](t *testing.T, v E, all []E, invalid string) {
	t.Helper()
	valid := v > 0 && int(v) <= len(all)
	require.Equal(t, !valid, strings.HasPrefix(v.String(), invalid), "%s", v)
	text, err := json.Marshal(v)
	if !valid {
		require.Error(t, err, "%s", v)
		return
	}
	require.NoError(t, err)
	require.Equal(t, `"`+v.String()+`"`, string(text))
	var back E
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, v, back)
}

func TestUnknownEnumNames(t *testing.T) {
	s := StatusExited
	for _, text := range []string{"", "Exited", "status(1)", "status(0)", "exited "} {
		require.ErrorContains(t, s.UnmarshalText([]byte(text)), "unknown status", text)
		require.Equal(t, StatusExited, s, "an error changes nothing")
	}
	var f Fault
	require.ErrorContains(t, f.UnmarshalText([]byte("user")), `unknown fault "user"`)
}

func TestStatusesReturnsACopy(t *testing.T) {
	Statuses()[0] = 0
	Faults()[0] = 0
	require.Equal(t, StatusExited, Statuses()[0])
	require.Equal(t, FaultNone, Faults()[0])
}
