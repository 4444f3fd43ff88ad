package images

import (
	"context"
	"fmt"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/evalbox/evalbox/internal/owner"
)

// stopRetry is how often the command of a build that is to end is looked for.
const stopRetry = 200 * time.Millisecond

// stopWith is a context for a build that is to end with ctx, and what to call when
// it has ended. An engine whose caller hangs up goes on with the step that it is at,
// and leaves what comes of it: so the command of that step is killed instead, and the
// answer is read to its end. Only an engine that does not end then is left alone.
func (m *maker) stopWith(ctx context.Context) (build context.Context, ended func(), err error) {
	before, err := m.commands(ctx)
	if err != nil {
		return nil, nil, err
	}
	build, cancel := context.WithCancel(context.WithoutCancel(ctx))
	over := context.AfterFunc(ctx, func() {
		limit := time.After(discardTime)
		again := time.NewTicker(stopRetry)
		defer again.Stop()
		for {
			m.killCommands(build, before)
			select {
			case <-again.C:
			case <-limit:
				cancel()
			case <-build.Done():
				return
			}
		}
	})
	return build, func() { over(); cancel() }, nil
}

// killCommands kills the commands of this build. An error is tried again.
func (m *maker) killCommands(ctx context.Context, before map[string]bool) {
	now, _ := m.commands(ctx)
	for id := range now {
		if !before[id] {
			_ = m.eng.ContainerKill(ctx, id, "KILL")
		}
	}
}

// commands are the running containers that may be those of a build of this recipe:
// they have its label as everything has that stands on it, but none of a run, and
// their image has no name.
func (m *maker) commands(ctx context.Context) (map[string]bool, error) {
	all, err := m.eng.ContainerList(ctx, container.ListOptions{
		Filters: filters.NewArgs(filters.Arg("label", LabelRecipe+"="+m.entry.Recipe())),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the containers: %w", err)
	}
	ids := map[string]bool{}
	for _, c := range all {
		step, err := m.eng.ImageInspect(ctx, c.ImageID)
		if err == nil && len(realNames(step.RepoTags, noTag)) == 0 && c.Labels[owner.LabelManaged] == "" {
			ids[c.ID] = true
		}
	}
	return ids, nil
}
