package sweep

import (
	"context"
	"errors"
)

// end writes the manifest, if it is due, and says what went wrong.
func (s *sweep) end(ctx context.Context) error {
	missing, failures := s.report.Count(StatusMissing), s.failures()
	var errs []error
	switch {
	case missing > 0 && ctx.Err() != nil:
		errs = append(errs, context.Cause(ctx))
	case missing > 0:
		for _, end := range s.report.Runs {
			if end.Err != nil && len(errs) < maxTold {
				errs = append(errs, end.Err)
			}
		}
	case failures == nil || s.opts.KeepGoing:
		var err error
		if s.report.Manifest, err = s.writeManifest(); err != nil {
			errs = append(errs, err)
		}
	}
	if failures != nil {
		failures.Stopped = missing > 0 && len(errs) == 0
		errs = append(errs, failures)
	}
	return errors.Join(errs...)
}

func (s *sweep) writeManifest() (string, error) {
	hashes := make([]string, s.plan.Len())
	for i, end := range s.report.Runs {
		hashes[i] = end.ManifestHash
	}
	text, err := s.plan.Manifest(hashes)
	if err != nil {
		return "", err
	}
	return s.folder.writeManifest(text)
}
