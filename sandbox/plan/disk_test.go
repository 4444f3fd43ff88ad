package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestPlanDisk(t *testing.T) {
	none := spec.DiskBounds{NoQuota: "takes root", NoLoop: "takes root as well"}
	both := spec.DiskBounds{Quota: true, Loop: true}
	loop := spec.DiskBounds{Loop: true, NoQuota: "is off"}
	for name, test := range map[string]struct {
		host     spec.DiskBounds
		hard     bool
		transfer string
		runtime  string
		want     string
		refused  string
	}{
		"nothing is known":       {want: spec.DiskFileSize},
		"a quota":                {host: both, want: spec.DiskQuota},
		"no quota":               {host: loop, want: spec.DiskFileSize},
		"a kernel of its own":    {host: both, runtime: "runsc", want: spec.DiskFileSize},
		"copied":                 {host: both, transfer: spec.TransferCopy, want: spec.DiskFileSize},
		"hard, a quota":          {host: both, hard: true, want: spec.DiskQuota},
		"hard, no quota":         {host: loop, hard: true, want: spec.DiskLoop},
		"hard, its own kernel":   {host: both, hard: true, runtime: "runsc-debug", want: spec.DiskLoop},
		"hard, neither":          {host: none, hard: true, refused: "a quota takes root; a file system in a file takes root as well"},
		"hard, nothing is known": {hard: true, refused: "cannot be enforced here"},
		"hard, copied":           {host: both, hard: true, transfer: spec.TransferCopy, refused: "that files are copied to"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := planDisk(spec.Request{Runtime: test.runtime}, test.transfer, policy.Policy{HardDisk: test.hard}, spec.Host{Disk: test.host})
			if test.refused != "" {
				var field *policy.FieldError
				require.ErrorAs(t, err, &field)
				require.Equal(t, "disk-bound", field.Field)
				require.Contains(t, field.Rule, test.refused)
				require.NotEmpty(t, field.Hint)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestPlanFileSize(t *testing.T) {
	own := func(soft, hard int64) []spec.Ulimit { return []spec.Ulimit{{Name: "fsize", Soft: soft, Hard: hard}} }
	for name, test := range map[string]struct {
		asked []spec.Ulimit
		want  spec.FileSize
	}{
		"the disk limit":       {nil, spec.FileSize{Soft: 100, Hard: 100}},
		"less":                 {own(5, 50), spec.FileSize{Soft: 5, Hard: 50}},
		"more":                 {own(5, 500), spec.FileSize{Soft: 5, Hard: 100}},
		"without a bound":      {own(-1, -1), spec.FileSize{Soft: 100, Hard: 100}},
		"of something else":    {[]spec.Ulimit{{Name: "cpu", Soft: 1, Hard: 1}}, spec.FileSize{Soft: 100, Hard: 100}},
		"the last one counts":  {append(own(5, 50), own(6, 60)...), spec.FileSize{Soft: 6, Hard: 60}},
		"nothing at all":       {own(0, 0), spec.FileSize{}},
		"nothing, for a while": {own(0, -1), spec.FileSize{Hard: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, *planFileSize(test.asked, 100))
		})
	}
}
