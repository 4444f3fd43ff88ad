package image

import (
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestPatience(t *testing.T) {
	of := func(labels ...string) container.Summary {
		c := container.Summary{Labels: map[string]string{spec.LabelManaged: "true"}}
		for i := 0; i < len(labels); i += 2 {
			c.Labels[labels[i]] = labels[i+1]
		}
		return c
	}
	this := owner.This()
	dead := this
	dead.Start += "0" // the process ID belongs to another process by now
	gone, running := of(spec.LabelOwner, dead.String()), of(spec.LabelOwner, this.String())
	kept, foreign := of(spec.LabelOwner, dead.String(), spec.LabelKeep, "true"), container.Summary{}
	require.Equal(t, busyCleanupTime, patience([]container.Summary{gone, gone}), "both are being removed")
	require.Equal(t, cleanupTime, patience([]container.Summary{gone, running}), "one may go on")
	require.Equal(t, cleanupTime, patience(nil))
	require.Zero(t, patience([]container.Summary{kept}))
	require.Zero(t, patience([]container.Summary{foreign}))
}
