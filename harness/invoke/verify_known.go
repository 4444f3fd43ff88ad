package invoke

import "context"

// known reads what every tool leaves, and what the profile declares.
func (v *verification) known(ctx context.Context) error {
	fields, err := v.document(ctx, ManifestName, RoleManifest, manifestFields, false)
	if err != nil {
		return err
	}
	v.report.Manifest = fields
	mode := v.opts.Mode
	if err := v.records(ctx, TracePackName, RoleTracePack, false, func(text []byte, line int64) *ArtifactError {
		return checkRecord(text, TracePackName, line, mode)
	}); err != nil {
		return err
	}
	if _, err := v.document(ctx, AdapterMetadataName, RoleAdapterMetadata, nil, true); err != nil {
		return err
	}
	for _, d := range v.opts.Profile.Artifacts {
		switch d.Format {
		case FormatJSON:
			_, err = v.document(ctx, d.Path, RoleDeclared, d.Keys, d.Optional)
		case FormatJSONL:
			err = v.records(ctx, d.Path, RoleDeclared, d.Optional, func(text []byte, line int64) *ArtifactError {
				record, problem := parseObject(text, d.Path, line)
				if missing := without(record, d.Keys); problem == nil && len(missing) > 0 {
					return missingFields(d.Path, line, missing)
				}
				return problem
			})
		default:
			err = v.bytes(ctx, d.Path, RoleDeclared, d.Optional)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
