package gpu

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/sandbox/metrics"
)

// Usage is the use of GPUs, as one nvidia-smi reports it that goes on as long as it is watched. It
// speaks for NVML, which only a program with cgo can load. The zero Usage knows nothing. Methods may be
// called concurrently.
type Usage struct {
	mu   sync.Mutex
	last []metrics.GPU
}

// maxUsed bounds the GPUs whose use is known.
const maxUsed = 64

// Watch asks for the use of the GPUs, or of all if there are no IDs, until ctx ends, once in each
// period. Without nvidia-smi, or if it fails, nothing is known.
func (u *Usage) Watch(ctx context.Context, ids []string, period time.Duration) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return
	}
	args := []string{"--query-gpu=uuid,index,utilization.gpu,memory.used", "--format=csv,noheader,nounits", "--loop=" + strconv.Itoa(max(int(period.Seconds()), 1))}
	if len(ids) > 0 {
		args = append(args, "--id="+strings.Join(ids, ","))
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	stdout, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return
	}
	u.read(ids, stdout)
	_ = cmd.Wait() // its context has ended, or it has failed
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = nil
}

// read takes the lines of nvidia-smi.
func (u *Usage) read(ids []string, from io.Reader) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), ",")
		if len(fields) != 4 {
			continue
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		percent, err := strconv.ParseFloat(fields[2], 64)
		memory, memoryErr := strconv.ParseInt(fields[3], 10, 64)
		if err != nil || memoryErr != nil || !(percent >= 0 && percent <= 100) || memory < 0 || memory > 1<<30 {
			continue // "[N/A]" for a part of a GPU
		}
		id := fields[0]
		if slices.Contains(ids, fields[1]) {
			id = fields[1] // as it was asked for
		}
		if len(ids) == 0 || slices.Contains(ids, id) {
			u.note(metrics.GPU{ID: id, Utilization: percent / 100, MemoryBytes: memory << 20})
		}
	}
}

func (u *Usage) note(is metrics.GPU) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.IndexFunc(u.last, func(g metrics.GPU) bool { return g.ID == is.ID }); i >= 0 {
		u.last[i] = is
	} else if len(u.last) < maxUsed {
		u.last = append(u.last, is)
	}
}

// Last returns the last use of each GPU that is known.
func (u *Usage) Last() []metrics.GPU {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.last)
}
