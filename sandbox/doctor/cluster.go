package doctor

import (
	"context"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
)

// checkCluster examines the cluster. The manifest of missing permissions is the Role that has them all.
func (m Machine) checkCluster(ctx context.Context) []Finding {
	report, err := kubernetes.Check(ctx, *m.Cluster, m.Request.Runtime)
	verdicts := map[kubernetes.Grade]Verdict{kubernetes.Seen: Info, kubernetes.Good: OK, kubernetes.Doubtful: Warn, kubernetes.Bad: Fail}
	var findings []Finding
	for _, f := range report.Findings {
		finding := Finding{Check: f.Check, Verdict: verdicts[f.Grade], Seen: text.OneLine(f.Text), Advice: f.Advice}
		if f.Check == kubernetes.CheckPermissions && len(report.Missing) > 0 {
			finding.Manifest = kubernetes.RoleYAML(report.Namespace, report.Missing)
		}
		findings = append(findings, finding)
	}
	if err != nil {
		findings = append(findings, failed("cluster", err))
	}
	return findings
}
