package result

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gpuFaultOf scans a text whole.
func gpuFaultOf(text string) string { return scanGPUFault(text).Line }

func scanGPUFault(text string) GPUFault {
	var s GPUFaultScanner
	feed(&s, text)
	fault, _ := s.Fault()
	return fault
}

func TestGPUFaults(t *testing.T) {
	for _, line := range []string{
		"RuntimeError: CUDA error: unknown error",
		"RuntimeError: CUDA error: uncorrectable ECC error encountered",
		"torch.AcceleratorError: CUDA error: no CUDA-capable device is detected",
		"RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver from http://www.nvidia.com/Download/index.aspx",
		"RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
		"Failed to initialize NVML: Unknown Error",
		"Failed to initialize NVML: Driver/library version mismatch",
		"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
		"Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU",
		"pynvml.NVMLError_GpuIsLost: GPU is lost",
		"NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
		"NVRM: Xid (PCI:0000:3b:00): 48, pid=1234, An uncorrectable double bit error (DBE) has been detected",
		"NVRM: Xid (PCI:0000:3b:00): 119",
		"jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA_ERROR_NO_DEVICE",
		"failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error",
		"UserWarning: CUDA initialization: CUDA driver initialization failed, you might not have a CUDA gpu.",
		"cudaErrorECCUncorrectable",
	} {
		require.NotEmpty(t, gpuFaultOf("epoch 1\n"+line+"\nepoch 2\n"), line)
		require.NotEmpty(t, gpuFaultOf(line), "without a newline: %s", line)
		require.NotEmpty(t, gpuFaultOf("10%\r20%\r"+line+"\r30%"), line)
	}
	for _, line := range []string{
		"", "GPU", "CUDA", "using GPU 0", "NVIDIA H200",
		"RuntimeError: CUDA error: device-side assert triggered",
		"RuntimeError: CUDA error: an illegal memory access was encountered",
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB",
		"RuntimeError: CUDA error: invalid device ordinal",
		"RuntimeError: CUDA error: misaligned address",
		"RuntimeError: CUDA error: unspecified launch failure",
		"RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasSgemm",
		"NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, Graphics Exception",
		"NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, MMU Fault", "NVRM: Xid (PCI:0000:3b:00): 43", "NVRM: Xid (PCI:0000:3b:00): 790",
		"NVRM: Xid (PCI:", "Xid (PCI:0): ", "Xid (PCI:0): x",
		"GPU is\nlost",
		strings.Repeat("x", maxFaultLine) + "GPU is lost",
	} {
		require.Empty(t, gpuFaultOf(line+"\n"+line), line)
	}
	// Every one of the texts is found by one of the words that are looked for
	// first.
	for _, fault := range slices.Concat(gpuFaults, doubtfulGPUFaults) {
		found := false
		for _, word := range faultWords {
			found = found || bytes.Contains(fault, word)
		}
		require.True(t, found, "%s", fault)
	}
}

// TestDoubtfulGPUFaults are those that a program can bring about by itself; one
// that it cannot comes first wherever it stands.
func TestDoubtfulGPUFaults(t *testing.T) {
	const sure = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
	for _, line := range []string{
		"torch.AcceleratorError: CUDA error: no CUDA-capable device is detected",
		"cudaErrorNoDevice", "INTERNAL: CUDA_ERROR_NO_DEVICE",
		"RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
		"RuntimeError: CUDA error: unknown error", "failed call to cuInit: CUDA_ERROR_UNKNOWN: unknown error",
		"UserWarning: CUDA initialization: CUDA driver initialization failed, you might not have a CUDA gpu.",
	} {
		require.Equal(t, GPUFault{`"` + line + `"`, true}, scanGPUFault(line+"\ncudaErrorNoDevice\n"), "the first of them")
		for _, text := range []string{line + "\n" + sure, sure + "\n" + line, line + "\n" + sure + "\n" + line + "\n"} {
			require.Equal(t, GPUFault{`"` + sure + `"`, false}, scanGPUFault(text), text)
		}
		require.False(t, scanGPUFault(line+": GPU is lost").Doubtful)
	}
	for _, line := range []string{"GPU is lost", "Failed to initialize NVML: Unknown Error", "NVRM: Xid (PCI:0000:3b:00): 79"} {
		require.Equal(t, GPUFault{`"` + line + `"`, false}, scanGPUFault(line))
	}
}

func TestGPUFaultIsQuoted(t *testing.T) {
	require.Equal(t, `"first: GPU is lost"`, gpuFaultOf("first: GPU is lost\nsecond: GPU is lost\n"))
	require.Equal(t, `"\x1b[31mGPU is lost \u202e"`, gpuFaultOf("  \x1b[31mGPU is lost \u202e\t\n"))
	long := gpuFaultOf(strings.Repeat("a", 1000) + "GPU is lost" + strings.Repeat("b", 1000))
	require.Contains(t, long, "aaGPU is lostbb")
	require.LessOrEqual(t, len(long), 4*maxFaultQuote+2)
	var s GPUFaultScanner
	feed(&s, "one\ntwo: GPU is")
	_, ok := s.Fault()
	require.False(t, ok)
	feed(&s, " lost")
	line, ok := s.Fault()
	require.True(t, ok)
	require.Equal(t, `"two: GPU is lost"`, line.Line)
	feed(&s, "\nthree: GPU is lost\n")
	again, _ := s.Fault()
	require.Equal(t, line, again, "more does not change it")
}

// FuzzGPUFault compares one piece with many, and with a look at every line.
func FuzzGPUFault(f *testing.F) {
	f.Add("epoch 1\nGPU is lost\n", 3)
	f.Add("NVRM: Xid (PCI:0000:3b:00): 13, x\r\nNVRM: Xid (PCI:0000:3b:00): 79, y\n", 7)
	f.Add(strings.Repeat("CUDA\n", 50)+"CUDA error: unknown error", 1)
	f.Add("cudaErrorNoDevice\nx\ncudaErrorNoDevice: GPU is lost\nGPU is lost", 2)
	f.Add(strings.Repeat("x", 5000)+"\nFailed to initialize NVML\n", 4096)
	f.Fuzz(func(t *testing.T, text string, piece int) {
		piece = max(1, piece%9000)
		var s GPUFaultScanner
		for rest := text; rest != ""; {
			n := min(len(rest), piece)
			wrote, err := s.Write([]byte(rest[:n]))
			require.NoError(t, err)
			require.Equal(t, n, wrote)
			require.LessOrEqual(t, len(s.line), maxFaultLine)
			rest = rest[n:]
		}
		got, ok := s.Fault()
		var want GPUFault
		for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
			want = better(want, faultLine([]byte(line[:min(len(line), maxFaultLine)])))
		}
		require.Equal(t, want, got)
		require.Equal(t, want.Line != "", ok)
	})
}

func BenchmarkGPUFault(b *testing.B) {
	for name, text := range map[string]string{
		"usual":    strings.Repeat("step 1234 loss 0.1234 acc 0.99 lr 0.0001 time 0.12s\n", 2000),
		"hostile":  strings.Repeat("NVRM: Xid (PCI:0000:3b:00): 13, pid=1234\n", 2000),
		"doubtful": strings.Repeat("CUDA error: unknown error\n", 4000),
		"endless":  strings.Repeat("CUDA ", 20000),
	} {
		b.Run(name, func(b *testing.B) {
			piece := []byte(text)
			b.SetBytes(int64(len(piece)))
			var s GPUFaultScanner
			for b.Loop() {
				_, _ = s.Write(piece)
			}
		})
	}
}
