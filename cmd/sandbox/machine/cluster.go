package machine

import (
	"context"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/doctor"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
)

// checkCluster examines the cluster of the settings. The manifest of missing permissions is the Role that has them all.
func checkCluster(ctx context.Context, s settings.Settings) []doctor.Finding {
	report, err := kubernetes.Check(ctx, s.Cluster, s.Runtime)
	verdicts := map[kubernetes.Grade]doctor.Verdict{kubernetes.Seen: doctor.Info, kubernetes.Good: doctor.OK, kubernetes.Doubtful: doctor.Warn, kubernetes.Bad: doctor.Fail}
	var findings []doctor.Finding
	for _, f := range report.Findings {
		finding := doctor.Finding{Check: f.Check, Verdict: verdicts[f.Grade], Seen: text.OneLine(f.Text), Advice: f.Advice}
		if f.Check == kubernetes.CheckPermissions && len(report.Missing) > 0 {
			finding.Manifest = kubernetes.RoleYAML(report.Namespace, report.Missing)
		}
		findings = append(findings, finding)
	}
	if err != nil {
		findings = append(findings, doctor.Finding{Check: "cluster", Verdict: doctor.Fail, Seen: text.OneLine(err.Error()), Err: err})
	}
	return findings
}
