package gpu

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What nvidia-smi says instead of an answer, on stdout and with any exit code.
var driverTexts = []string{
	"No devices were found\n",
	"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n\n",
	"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.183\n",
	"Failed to initialize NVML: Unknown Error\n",
	"Failed to initialize NVML: Insufficient Permissions\n",
	"Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
	"Unable to determine the device handle for GPU0000:65:00.0: Unknown Error\n",
	"Unable to determine the device handle for gpu 0000:01:00.0: Unable to communicate with GPU because it is insufficiently powered.\nThis may be because not all required external power cables are\nattached, or the attached cables are not seated properly.\n",
	"Field \"mig.mode.current\" is not a valid field to query.\n",
	"[Unknown Error]\n", "[N/A]\n", "ERR!\n", "[GPU is lost]\n", "[GPU requires reset]\n",
	"NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly installed and present in your system.\nPlease also try adding directory that contains libnvidia-ml.so to your system PATH.\n",
	"WARNING: infoROM is corrupted at gpu 0000:0A:00.0\n",
	"\x1b]0;owned\x07\n", strings.Repeat("A", 200) + "\n", "\n", "",
}

func TestDriverTextIsNotAGPU(t *testing.T) {
	for _, text := range driverTexts {
		require.Equal(t, []string{}, parseNames(text), text)
		devices, err := parseDevices(text)
		require.Error(t, err, text)
		require.Empty(t, devices)
	}
}

func TestNames(t *testing.T) {
	all := []string{
		"NVIDIA H200", "NVIDIA A100-SXM4-80GB", "Tesla T4", "NVIDIA GeForce RTX 4090", "GeForce GTX 1080 Ti", "Quadro RTX 6000",
		"TITAN V", "GRID V100D-8Q", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA H100L-2-24C", "Orin (nvgpu)", "NVIDIA Graphics Device",
		"NVIDIA RTX 6000 Ada Generation", "NVIDIA GH200 480GB", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
	}
	require.Equal(t, all, parseNames(strings.Join(all, "\n")+"\n"))
	require.Equal(t, []string{"Tesla T4", "Tesla T4"}, parseNames("Tesla T4\r\n"+driverTexts[5]+"Tesla T4"), "what can be read counts")
	require.Len(t, parseNames(strings.Repeat("Tesla T4\n", 1000)), maxGPUs)
}

func TestDevices(t *testing.T) {
	const gib = 1 << 30
	for name, test := range map[string]struct {
		out  string
		want []Device
	}{
		"healthy, with and without ECC and MIG": {
			"0, GPU-8f6d4a1e-0b1c-4c58-9d29-7e4b0e5f1a2b, NVIDIA H200, 143771, 0, 0, Disabled\n" +
				"1, GPU-0a5e0dc4-1f4c-7f0a-4d3e-5b6c7d8e9f00, NVIDIA GeForce RTX 3090, 24576, 314, [N/A], [N/A]\n",
			[]Device{
				{ID: "0", UUID: "GPU-8f6d4a1e-0b1c-4c58-9d29-7e4b0e5f1a2b", Name: "NVIDIA H200", TotalBytes: 143771 << 20},
				{ID: "1", UUID: "GPU-0a5e0dc4-1f4c-7f0a-4d3e-5b6c7d8e9f00", Name: "NVIDIA GeForce RTX 3090", TotalBytes: 24 * gib, UsedBytes: 314 << 20},
			}},
		"an old driver": {"0, GPU-1, Tesla K80, 11441, 12, [Not Supported]\n",
			[]Device{{ID: "0", UUID: "GPU-1", Name: "Tesla K80", TotalBytes: 11441 << 20, UsedBytes: 12 << 20}}},
		"shared memory": {"0, GPU-1, Orin (nvgpu), [N/A], [N/A], [N/A], [N/A]\n",
			[]Device{{ID: "0", UUID: "GPU-1", Name: "Orin (nvgpu)", TotalBytes: Unknown, UsedBytes: Unknown}}},
		"a lost one among others": {"0, GPU-1, Tesla T4, 15360, 3, 0, [N/A]\n1, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]\n",
			[]Device{{ID: "0", UUID: "GPU-1", Name: "Tesla T4", TotalBytes: 15 * gib, UsedBytes: 3 << 20},
				{ID: "1", TotalBytes: Unknown, UsedBytes: Unknown, Problem: `nvidia-smi cannot read it: "[GPU is lost]"`}}},
		"one complaint in a row": {"0, GPU-1, Tesla T4, 15360, [Unknown Error], 0, [N/A]\n",
			[]Device{{ID: "0", UUID: "GPU-1", Name: "Tesla T4", TotalBytes: 15 * gib, UsedBytes: Unknown,
				Problem: `nvidia-smi cannot read it: "[Unknown Error]"`}}},
		"reset": {"3, GPU-1, NVIDIA A100-SXM4-80GB, 81920, 0, [GPU requires reset], Disabled\n",
			[]Device{{ID: "3", UUID: "GPU-1", Name: "NVIDIA A100-SXM4-80GB", TotalBytes: 80 * gib,
				Problem: `nvidia-smi cannot read it: "[GPU requires reset]"`}}},
		"broken memory": {"0, GPU-1, Tesla V100-SXM2-16GB, 16384, 0, 2, [N/A]\n",
			[]Device{{ID: "0", UUID: "GPU-1", Name: "Tesla V100-SXM2-16GB", TotalBytes: 16 * gib,
				Problem: "2 uncorrectable memory errors since the driver was loaded"}}},
		"parts": {"0, GPU-1, NVIDIA A100-SXM4-40GB, 40960, 0, 0, Enabled\n",
			[]Device{{ID: "0", UUID: "GPU-1", Name: "NVIDIA A100-SXM4-40GB", TotalBytes: 40 * gib,
				Problem: "is split into parts (MIG mode), which are not lent"}}},
		"a complaint before the rows": {driverTexts[5] + "1, GPU-1, Tesla T4, 15360, 0, 0, [N/A]\n",
			[]Device{{ID: "1", UUID: "GPU-1", Name: "Tesla T4", TotalBytes: 15 * gib}}},
		"twice the same index": {"0, GPU-1, Tesla T4, 1, 0, 0\n0, GPU-2, Tesla T4, 1, 0, 0\n",
			[]Device{{ID: "0", UUID: "GPU-1", Name: "Tesla T4", TotalBytes: 1 << 20}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseDevices(test.out)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
	for _, row := range []string{"0", "0, GPU-1, Tesla T4", "-1, GPU-1, Tesla T4, 1, 0, 0", "x, GPU-1, Tesla T4, 1, 0, 0", `0, "`, "0,1,2,3,4,5,6,7,8"} {
		_, err := parseDevices(row)
		require.Error(t, err, row)
	}
	_, err := parseDevices("")
	require.ErrorContains(t, err, "(nothing)")
}

func TestUsedByOthers(t *testing.T) {
	const gib = 1 << 30
	for _, test := range []struct {
		total, used int64
		quarantined bool
	}{
		{80 * gib, 0, false}, {80 * gib, 8 * gib, false}, {80 * gib, 9 * gib, true}, {8 * gib, gib, false}, {8 * gib, gib + 1<<20, true},
		{Unknown, 80 * gib, false}, {80 * gib, Unknown, false}, {0, 0, false},
	} {
		require.Equal(t, test.quarantined, Device{TotalBytes: test.total, UsedBytes: test.used}.usedByOthers() != "", test)
	}
	require.Equal(t, "9216 MiB of its 81920 MiB are used by somebody else", Device{TotalBytes: 80 * gib, UsedBytes: 9 * gib}.usedByOthers())
}

func FuzzParse(f *testing.F) {
	for _, text := range driverTexts {
		f.Add(text)
	}
	f.Add("0, GPU-1, Tesla T4, 15360, 3, 0, [N/A]\n")
	f.Fuzz(func(t *testing.T, out string) {
		names := parseNames(out)
		require.NotNil(t, names)
		require.LessOrEqual(t, len(names), maxGPUs)
		devices, err := parseDevices(out)
		require.Equal(t, err == nil, len(devices) > 0)
		require.LessOrEqual(t, len(devices), maxGPUs)
		for _, d := range devices {
			require.Equal(t, d.Problem, harmless(d.Problem))
			require.LessOrEqual(t, len(d.Name), maxName)
			require.True(t, d.UUID == "" || isID(d.UUID))
		}
	})
}
