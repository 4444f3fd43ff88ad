package policy

import (
	"cmp"
	"time"
)

// Limits bound one run. In a request the zero value of a field means "the
// policy's default"; after [Policy.Apply] every field holds its effective value.
type Limits struct {
	// Timeout bounds the program's wall-clock time, and nothing else: pulling
	// an image or creating the container does not count.
	Timeout time.Duration `json:"-"`
	// Grace is the time between SIGTERM and SIGKILL (EX-009).
	Grace time.Duration `json:"-"`

	// Memory bounds the memory of all processes, tmpfs and shared memory
	// included. Swap is always off.
	Memory Size `json:"memory,omitzero"`
	// CPUs is the number of processors, enforced as a quota.
	CPUs float64 `json:"cpus,omitzero"`
	// PIDs bounds processes and threads; the default is
	// max(1024, 16 x CPUs).
	PIDs int64 `json:"pids,omitzero"`
	// NoFile bounds open files; the default is 65536 or the engine's own
	// limit, whichever is lower.
	NoFile int64 `json:"no_file,omitzero"`

	// Shm, Tmp and Scratch are the sizes of /dev/shm, /tmp and the working
	// directory. All three count as memory. The defaults are shares of Memory.
	Shm     Size `json:"shm,omitzero"`
	Tmp     Size `json:"tmp,omitzero"`
	Scratch Size `json:"scratch,omitzero"`

	// Disk bounds what the program may hold in ./final while it runs.
	Disk Size `json:"disk,omitzero"`
	// Output ends a run that has written more than this to stdout and stderr
	// together. Zero means no such limit: output is then cut, not the run.
	Output Size `json:"output,omitzero"`

	// StreamFile bounds the file that keeps one stream (EX-038).
	StreamFile Size `json:"stream_file,omitzero"`
	// CaptureStdout and CaptureStderr bound the text of a stream in the result
	// (CX-05).
	CaptureStdout Size `json:"capture_stdout,omitzero"`
	CaptureStderr Size `json:"capture_stderr,omitzero"`

	// OutputFiles, OutputDepth, OutputFile and OutputTotal bound what is
	// collected from ./final: entries, directory levels, bytes of one file and
	// of all.
	OutputFiles int  `json:"output_files,omitzero"`
	OutputDepth int  `json:"output_depth,omitzero"`
	OutputFile  Size `json:"output_file,omitzero"`
	OutputTotal Size `json:"output_total,omitzero"`
}

// Default returns the limits of evalbox where nobody said anything else.
func Default() Limits {
	return Limits{
		Timeout: time.Hour,
		Grace:   5 * time.Second,

		Memory: 2 * GiB,
		CPUs:   2,

		Disk: 20 * GiB,

		StreamFile:    100 * MiB,
		CaptureStdout: 1 * MiB,
		CaptureStderr: 256 * KiB,

		OutputFiles: 10_000,
		OutputDepth: 32,
		OutputFile:  10 * GiB,
		OutputTotal: 20 * GiB,
	}
}

// over returns l with every zero field taken from base.
func (l Limits) over(base Limits) Limits {
	return Limits{
		Timeout: cmp.Or(l.Timeout, base.Timeout), Grace: cmp.Or(l.Grace, base.Grace),
		Memory: cmp.Or(l.Memory, base.Memory), CPUs: cmp.Or(l.CPUs, base.CPUs),
		PIDs: cmp.Or(l.PIDs, base.PIDs), NoFile: cmp.Or(l.NoFile, base.NoFile),
		Shm: cmp.Or(l.Shm, base.Shm), Tmp: cmp.Or(l.Tmp, base.Tmp), Scratch: cmp.Or(l.Scratch, base.Scratch),
		Disk: cmp.Or(l.Disk, base.Disk), Output: cmp.Or(l.Output, base.Output),
		StreamFile:    cmp.Or(l.StreamFile, base.StreamFile),
		CaptureStdout: cmp.Or(l.CaptureStdout, base.CaptureStdout),
		CaptureStderr: cmp.Or(l.CaptureStderr, base.CaptureStderr),
		OutputFiles:   cmp.Or(l.OutputFiles, base.OutputFiles),
		OutputDepth:   cmp.Or(l.OutputDepth, base.OutputDepth),
		OutputFile:    cmp.Or(l.OutputFile, base.OutputFile),
		OutputTotal:   cmp.Or(l.OutputTotal, base.OutputTotal),
	}
}

// derived returns l with the limits that follow from memory and processors.
func (l Limits) derived() Limits {
	l.PIDs = cmp.Or(l.PIDs, max(1024, int64(16*l.CPUs)))
	// A floor keeps a memory limit that is refused from being reported four
	// times.
	l.Tmp = cmp.Or(l.Tmp, max(l.Memory/4, minMount))
	l.Scratch = cmp.Or(l.Scratch, max(l.Memory/4, minMount))
	// A DataLoader of PyTorch dies with a bus error in 64 MiB of shared memory.
	shm := min(l.Memory/2, 8*GiB)
	if l.Memory >= 4*GiB {
		shm = max(shm, GiB)
	}
	l.Shm = cmp.Or(l.Shm, max(shm, minMount))
	return l
}

// cappedUnless lowers to a ceiling every limit of l that was not asked for: a
// policy with a ceiling below a default must not refuse every run.
func (l Limits) cappedUnless(asked, ceiling Limits) Limits {
	return Limits{
		Timeout: lower(l.Timeout, asked.Timeout, ceiling.Timeout), Grace: lower(l.Grace, asked.Grace, ceiling.Grace),
		Memory: lower(l.Memory, asked.Memory, ceiling.Memory), CPUs: lower(l.CPUs, asked.CPUs, ceiling.CPUs),
		PIDs: lower(l.PIDs, asked.PIDs, ceiling.PIDs), NoFile: lower(l.NoFile, asked.NoFile, ceiling.NoFile),
		Shm: lower(l.Shm, asked.Shm, ceiling.Shm), Tmp: lower(l.Tmp, asked.Tmp, ceiling.Tmp),
		Scratch: lower(l.Scratch, asked.Scratch, ceiling.Scratch),
		Disk:    lower(l.Disk, asked.Disk, ceiling.Disk), Output: lower(l.Output, asked.Output, ceiling.Output),
		StreamFile:    lower(l.StreamFile, asked.StreamFile, ceiling.StreamFile),
		CaptureStdout: lower(l.CaptureStdout, asked.CaptureStdout, ceiling.CaptureStdout),
		CaptureStderr: lower(l.CaptureStderr, asked.CaptureStderr, ceiling.CaptureStderr),
		OutputFiles:   lower(l.OutputFiles, asked.OutputFiles, ceiling.OutputFiles),
		OutputDepth:   lower(l.OutputDepth, asked.OutputDepth, ceiling.OutputDepth),
		OutputFile:    lower(l.OutputFile, asked.OutputFile, ceiling.OutputFile),
		OutputTotal:   lower(l.OutputTotal, asked.OutputTotal, ceiling.OutputTotal),
	}
}

func lower[T int | int64 | float64 | Size | time.Duration](value, asked, ceiling T) T {
	if asked == 0 && ceiling > 0 {
		return min(value, ceiling)
	}
	return value
}
