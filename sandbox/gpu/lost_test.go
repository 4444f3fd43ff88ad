package gpu

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLostGPU(t *testing.T) {
	devices := []Device{{ID: "0"}, {ID: "1", Problem: "is broken"}}
	zero, one, two := Device{ID: "0"}, Device{ID: "1"}, Device{ID: "2"}
	require.Empty(t, Lost([]Device{zero}, devices, nil))
	require.Equal(t, "GPU 1: is broken", Lost([]Device{zero, one}, devices, nil))
	require.Equal(t, "GPU 2: nvidia-smi does not list it any more", Lost([]Device{zero, two}, devices, nil))
	require.Equal(t, "it hangs", Lost([]Device{zero}, nil, errors.New("it hangs")))
	// A GPU that fell off the bus takes its index with it: those that stay are
	// looked for by their lasting names.
	a, b := Device{ID: "0", UUID: "GPU-a"}, Device{ID: "1", UUID: "GPU-b"}
	require.Equal(t, "GPU 0: nvidia-smi does not list it any more", Lost([]Device{a}, []Device{{ID: "0", UUID: "GPU-b"}}, nil))
	require.Empty(t, Lost([]Device{b}, []Device{{ID: "0", UUID: "GPU-b"}}, nil))
	// One that cannot be read has no name.
	require.Equal(t, "GPU 0: is lost", Lost([]Device{a}, []Device{{ID: "0", Problem: "is lost"}, b}, nil))
	require.Empty(t, Lost([]Device{b}, []Device{{ID: "1", Problem: "is lost"}, {ID: "2", UUID: "GPU-b"}}, nil))
}
