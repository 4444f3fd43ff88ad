package result

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
)

// GPUFault is a line of output that reports a failed GPU.
type GPUFault struct {
	// Line is the line, quoted.
	Line string
	// Doubtful says that a program can cause the line with working GPUs: one that
	// hides them from itself prints "no CUDA-capable device is detected", too.
	Doubtful bool
}

// GPUFaultScanner finds the first line of a stream that reports a failed GPU or
// driver: a fault of the environment, not of the program. A certain line comes
// before doubtful ones. Write the stream to it in pieces of any size; they do not
// change the answer.
//
// Errors that programs make themselves (a device-side assert, an illegal memory
// access, out of memory) do not count. The scanner reads the first 4 KiB of each
// line; a carriage return ends a line too. Time is linear, and memory is bounded.
//
// The zero value is ready to use. It is not safe for concurrent use.
type GPUFaultScanner struct {
	// line is the beginning of the unfinished line.
	line []byte
	// fault is the best line so far.
	fault GPUFault
}

const (
	// maxFaultLine bounds the part of a line that is read, and maxFaultQuote the
	// part that is quoted.
	maxFaultLine  = 4 << 10
	maxFaultQuote = 200
)

// gpuFaults are texts of NVIDIA's driver, of CUDA, and of PyTorch that programs do
// not cause themselves.
var gpuFaults = [][]byte{
	[]byte("GPU is lost"),
	[]byte("has fallen off the bus"),
	[]byte("GPU requires reset"),
	[]byte("Failed to initialize NVML"),
	[]byte("NVML: Driver/library version mismatch"),
	[]byte("couldn't communicate with the NVIDIA driver"),
	[]byte("Unable to determine the device handle for"),
	[]byte("Found no NVIDIA driver on your system"),
	[]byte("uncorrectable ECC error"),
	[]byte("uncorrectable NVLink error"),
	[]byte("cudaErrorECCUncorrectable"),
	[]byte("cudaErrorNvlinkUncorrectable"),
	[]byte("CUDA_ERROR_ECC_UNCORRECTABLE"),
	[]byte("CUDA_ERROR_NVLINK_UNCORRECTABLE"),
	[]byte("CUDA_ERROR_SYSTEM_NOT_READY"),
	[]byte("cudaErrorSystemNotReady"),
	[]byte("cudaErrorSystemDriverMismatch"),
	[]byte("CUDA driver version is insufficient for CUDA runtime version"),
	xidMarker,
}

// doubtfulGPUFaults are texts that programs can cause as well: by choosing devices
// that do not exist, by forking, by holding a device in another process.
var doubtfulGPUFaults = [][]byte{
	[]byte("CUDA_ERROR_NO_DEVICE"),
	[]byte("CUDA_ERROR_UNKNOWN"),
	[]byte("cudaErrorNoDevice"),
	[]byte("CUDA error: unknown error"),
	[]byte("no CUDA-capable device is detected"),
	[]byte("all CUDA-capable devices are busy or unavailable"),
	[]byte("CUDA driver initialization failed"),
}

// faultWords are in each of the faults at least once.
var faultWords = [][]byte{
	[]byte("CUDA"), []byte("cudaError"), []byte("GPU"), []byte("NV"), []byte("Xid"), []byte("fallen off"), []byte("uncorrectable"),
	[]byte("device handle"),
}

var xidMarker = []byte("Xid (PCI:")

// hardwareXids are the driver's error numbers that mean hardware or driver. The
// others, such as 13, 31 and 43, are mostly a program's own.
var hardwareXids = []int{48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 109, 119, 120, 121, 140, 143}

// Write scans the next piece of the stream. It returns len(p) and never an error.
func (s *GPUFaultScanner) Write(p []byte) (int, error) {
	n := len(p)
	// Nearly all output has none of the words: then only the line that p continues,
	// and the one that it does not finish, may matter.
	plain := !slices.ContainsFunc(faultWords, func(word []byte) bool { return bytes.Contains(p, word) })
	for !s.certain() {
		if plain && len(s.line) == 0 {
			p = p[bytes.LastIndexAny(p, "\r\n")+1:]
		}
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			s.keep(p)
			return n, nil
		}
		s.keep(p[:i])
		s.fault = better(s.fault, faultLine(s.line))
		s.line = s.line[:0]
		p = p[i+1:]
	}
	return n, nil
}

// keep adds to the unfinished line.
func (s *GPUFaultScanner) keep(p []byte) {
	s.line = append(s.line, p[:min(len(p), maxFaultLine-len(s.line))]...)
}

// certain says that no further line can matter.
func (s *GPUFaultScanner) certain() bool { return s.fault.Line != "" && !s.fault.Doubtful }

// Fault returns the first line that reports a failed GPU, as if the stream
// ended here. More may be written after it.
func (s *GPUFaultScanner) Fault() (fault GPUFault, ok bool) {
	if fault = s.fault; !s.certain() {
		fault = better(fault, faultLine(s.line))
	}
	return fault, fault.Line != ""
}

// better returns the fault that counts, of two in the order of their lines.
func better(first, next GPUFault) GPUFault {
	if first.Line == "" || first.Doubtful && next.Line != "" && !next.Doubtful {
		return next
	}
	return first
}

// faultLine returns the fault that a line reports; zero for another line.
func faultLine(line []byte) GPUFault {
	if quoted := quoteFault(line, gpuFaults); quoted != "" {
		return GPUFault{Line: quoted}
	}
	quoted := quoteFault(line, doubtfulGPUFaults)
	return GPUFault{Line: quoted, Doubtful: quoted != ""}
}

// quoteFault quotes a line that has one of the texts; empty for another.
func quoteFault(line []byte, faults [][]byte) string {
	for _, fault := range faults {
		at := bytes.Index(line, fault)
		if at < 0 || bytes.Equal(fault, xidMarker) && !isHardwareXid(line[at:]) {
			continue
		}
		// The quoted part includes the text itself.
		from := max(0, min(at, at+len(fault)-maxFaultQuote/2))
		quoted := line[from:min(len(line), from+maxFaultQuote)]
		return fmt.Sprintf("%+q", bytes.TrimSpace(quoted))
	}
	return ""
}

// isHardwareXid reads the number of a line such as "Xid (PCI:0000:3b:00): 79, …".
func isHardwareXid(text []byte) bool {
	_, rest, ok := bytes.Cut(text, []byte("): "))
	if !ok {
		return false
	}
	end := 0
	for end < len(rest) && end < 4 && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	number, err := strconv.Atoi(string(rest[:end]))
	return err == nil && slices.Contains(hardwareXids, number)
}
