package image

import (
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
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
	facts := func(c engine.Found) sandbox.ContainerFacts {
		return sandbox.ContainerFacts{Owner: c.Labels[spec.LabelOwner]}
	}
	gone, running := of(spec.LabelOwner, "gone"), of(spec.LabelOwner, "running")
	kept, foreign := of(spec.LabelOwner, "gone", spec.LabelKeep, "true"), container.Summary{}
	require.Equal(t, busyCleanupTime, patience([]container.Summary{gone, gone}, facts), "both are being removed")
	require.Equal(t, cleanupTime, patience([]container.Summary{gone, running}, facts), "one may go on")
	require.Equal(t, cleanupTime, patience(nil, facts))
	require.Zero(t, patience([]container.Summary{kept}, facts))
	require.Zero(t, patience([]container.Summary{foreign}, facts))
}
