package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/result"
)

func TestHostGPUs(t *testing.T) {
	root := t.TempDir()
	findings, driver := hostGPUs(root)
	require.Empty(t, driver)
	require.Empty(t, bad(findings))
	require.Equal(t, "none", findings[0].Seen)

	treetest.Write(t, root, map[string]string{
		"dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidiactl": "", "etc/cdi/nvidia.yaml": "",
		driverVersion: "NVRM version: NVIDIA UNIX Open Kernel Module  570.86\nGCC version: 12\n",
	})
	findings, driver = hostGPUs(root)
	require.Equal(t, "NVRM version: NVIDIA UNIX Open Kernel Module 570.86", driver)
	require.Equal(t, "2 devices: /dev/nvidia0, /dev/nvidia1", findings[0].Seen)
	require.Equal(t, driver, findings[1].Seen)
	require.Equal(t, "1 file: /etc/cdi/nvidia.yaml", findings[2].Seen)
}

func TestJudgeGPU(t *testing.T) {
	ended := func(stdout string, code int) *result.Result {
		return &result.Result{ID: "r", Status: result.StatusExited, ExitCode: code, Stdout: stdout}
	}
	const none = "devices none\nvariable not set\ndriver none\n"
	const one = "devices /dev/nvidia0, /dev/nvidiactl\nvariable void\ndriver NVRM version: 570.86\n"
	f := judgeGPU("GPU", ended(one, 0), false)
	require.Equal(t, OK, f.Verdict)
	require.Contains(t, f.Seen, "/dev/nvidia0, /dev/nvidiactl")
	f = judgeGPU("GPU", ended(none, 0), true)
	require.Equal(t, Warn, f.Verdict)
	require.Contains(t, f.Seen, "the device is a stand-in")
	require.Equal(t, Fail, judgeGPU("GPU", ended(none, 0), false).Verdict)
	require.Equal(t, Fail, judgeGPU("GPU", ended("", 1), false).Verdict)
	require.Equal(t, Fail, judgeGPU("GPU", ended(one, 1), false).Verdict)
}
