package gpu

import (
	"fmt"
	"slices"
	"strings"
)

// Lost describes which of the GPUs that were well at the start of a run are lost at its
// end, by the result of a [Probe]; empty if none is. A GPU that is lost may change the
// indexes of the others.
func Lost(had, devices []Device, err error) string {
	if err != nil {
		return err.Error()
	}
	var lost []string
	for _, h := range had {
		i := slices.IndexFunc(devices, func(d Device) bool { return d.UUID != "" && d.UUID == h.UUID })
		if i < 0 {
			// One that cannot be read any more does not tell its UUID.
			i = slices.IndexFunc(devices, func(d Device) bool { return d.ID == h.ID && (d.UUID == "" || h.UUID == "") })
		}
		switch {
		case i < 0:
			lost = append(lost, fmt.Sprintf("GPU %s: nvidia-smi does not list it any more", h.ID))
		case devices[i].Problem != "":
			lost = append(lost, fmt.Sprintf("GPU %s: %s", h.ID, devices[i].Problem))
		}
	}
	return strings.Join(lost, "; ")
}
