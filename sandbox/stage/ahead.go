package stage

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/archive"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// OpenAhead makes the files of a container that is prepared before its run exists, with the ID that
// the run gets: an empty program, an empty ./final, and what is mounted beside them. [Open] takes
// them over. Files that are copied come with the run. The stage that it returns is only good for
// [Stage.SendAhead] and [Stage.CheckMounted]. After an error nothing is left behind.
func OpenAhead(o Options) (*Stage, error) {
	id := o.Plan.Job.RunID
	dir, err := o.Store.Reserve(id)
	if err != nil {
		return nil, err
	}
	s := newStage(o, dir)
	if err := s.fillAhead(); err != nil {
		return nil, errors.Join(err, o.Store.Unreserve(id))
	}
	return s, nil
}

// SendAhead makes everything that the container mounts available to the engine, empty, and returns its
// paths on the engine's machine. After an error the volume of the run may be there, unless its name
// is taken: [engine.ErrNameTaken].
func (s *Stage) SendAhead(ctx context.Context, labels map[string]string) (engine.Sources, error) {
	if !s.Copied() {
		return s.Sources, nil
	}
	to, err := copier(s.Engine)
	if err != nil {
		return nil, err
	}
	root, err := to.CreateVolume(context.WithoutCancel(ctx), s.Plan, labels)
	if err != nil {
		return nil, err
	}
	points, err := packAhead(s)
	if err == nil {
		err = to.FillVolume(ctx, s.Plan.Job.RunID, points)
	}
	return archive.Sources(root, s.Plan), err
}

func (s *Stage) fillAhead() (err error) {
	if s.Copied() {
		return nil
	}
	if s.Plan.Job.Script != "" {
		if s.Sources[spec.RoleProgram], err = s.writeProgram(nil); err != nil {
			return err
		}
	}
	if err := s.checkSources(); err != nil {
		return err
	}
	if err := s.openSources(); err != nil {
		return err
	}
	final := filepath.Join(s.Dir, record.OwnFinal)
	if err := fsx.MkdirReadable(final); err != nil {
		return record.StateError(final, "cannot be made", err)
	}
	s.Sources[spec.RoleFinal] = final
	return nil
}
