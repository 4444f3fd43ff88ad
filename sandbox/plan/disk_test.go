package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestPlanDisk(t *testing.T) {
	for name, test := range map[string]struct {
		noLoop   string
		hard     bool
		transfer string
		want     string
		refused  string
		hint     string
	}{
		"auto":           {want: spec.DiskFileSize},
		"auto, no loop":  {noLoop: "takes root", want: spec.DiskFileSize},
		"auto, copied":   {transfer: spec.TransferCopy, want: spec.DiskFileSize},
		"hard":           {hard: true, want: spec.DiskLoop},
		"hard, no loop":  {hard: true, noLoop: "takes root", refused: "takes root", hint: "run as root on Linux"},
		"hard, copied":   {hard: true, transfer: spec.TransferCopy, refused: "that files are copied to", hint: "--disk-bound auto"},
		"hard, not both": {hard: true, noLoop: "takes root", transfer: spec.TransferCopy, refused: "that files are copied to", hint: "have the files measured"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := planDisk(test.transfer, policy.Policy{HardDisk: test.hard}, spec.Host{NoLoop: test.noLoop})
			if test.refused != "" {
				var field *policy.FieldError
				require.ErrorAs(t, err, &field)
				require.Equal(t, "disk-bound", field.Field)
				require.Contains(t, field.Rule, test.refused)
				require.Contains(t, field.Hint, test.hint)
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
