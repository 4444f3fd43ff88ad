package render

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

// A Table is rows in columns, below a header. Lines follow it.
type Table struct {
	Header []string
	Rows   [][]string
	Lines  []string
}

// GPUs are the GPUs of a machine, with a line for each holder and the reasons why some are not
// lent, and those that wait for GPUs.
func GPUs(report sandbox.GPUReport, now time.Time) []Table {
	list := Table{Header: append([]string{"GPU", "MODEL", "MEMORY", "STATE"}, holderHeader...)}
	for _, g := range report.GPUs {
		row := []string{g.ID, cmp.Or(strings.TrimPrefix(g.Name, "NVIDIA "), "-"), gpuMemory(g.Device), g.State}
		for _, t := range g.Holders {
			list.Rows = append(list.Rows, append(row, holderCells(t, now)...))
			row = []string{"", "", "", ""}
		}
		if len(g.Holders) == 0 {
			list.Rows = append(list.Rows, append(row, "-", "-", "-", "-"))
		}
		if g.Reason != "" {
			list.Lines = append(list.Lines, fmt.Sprintf("GPU %s: %s", g.ID, g.Reason))
		}
	}
	if len(report.GPUs) == 0 {
		list = Table{Lines: []string{"no GPU known; looked at:\n  " + strings.Join(report.LookedAt, "\n  ")}}
	}
	if len(report.Queue) == 0 {
		return []Table{list}
	}
	queue := Table{Header: append([]string{"WANTS", "STATE"}, holderHeader...)}
	for _, t := range report.Queue {
		state := t.State
		if t.Aside {
			state = "aside"
		}
		queue.Rows = append(queue.Rows, append([]string{t.Want, state}, holderCells(t, now)...))
	}
	return []Table{list, queue}
}

// gpuMemory is how much of a GPU's memory is used.
func gpuMemory(d gpu.Device) string {
	if d.TotalBytes == gpu.Unknown {
		return "-"
	}
	used := "?"
	if d.UsedBytes != gpu.Unknown {
		used = strconv.FormatInt(d.UsedBytes>>30, 10)
	}
	return fmt.Sprintf("%s/%d GiB", used, d.TotalBytes>>30)
}

// holderHeader names the columns of who holds a GPU or waits. The process and the
// exact time are in the JSON.
var holderHeader = []string{"AGE", "USER", "RUN", "NAME"}

func holderCells(t gpu.Ticket, now time.Time) []string {
	return []string{Age(now.Sub(t.Since)), cmp.Or(text.Fit(t.User, 12), "-"), t.RunID, cmp.Or(t.Name, "-")}
}

// Age is a duration in its greatest unit.
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
