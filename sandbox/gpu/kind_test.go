package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGPUKind(t *testing.T) {
	device := func(name string, mib int64) Listed {
		return Listed{Device: Device{Name: name, TotalBytes: mib << 20}, State: StateFree}
	}
	sick := device("T4", 1)
	sick.State = StateQuarantined
	for name, test := range map[string]struct {
		listed     []Listed
		gpus, want string
		err        string
	}{
		"one kind":      {[]Listed{device("H200", 2), device("H200", 2)}, "1", "H200, 2 MiB", ""},
		"all":           {[]Listed{device("H200", 2), device("H200", 2)}, "all", "2 × H200, 2 MiB", ""},
		"sick ones":     {[]Listed{device("H200", 2), sick}, "all", "1 × H200, 2 MiB", ""},
		"two kinds":     {[]Listed{device("H200", 2), device("T4", 1)}, "1", "", "several kinds (H200, 2 MiB; T4, 1 MiB)"},
		"other memory":  {[]Listed{device("A100", 40), device("A100", 80)}, "1", "", "several kinds"},
		"nobody knows":  {[]Listed{device("", -1)}, "1", "", "is not known"},
		"there is none": {nil, "1", "", "is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Kind(test.listed, test.gpus)
			require.Equal(t, test.want, got)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err)
			}
		})
	}
}
