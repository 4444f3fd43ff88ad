//go:build unix

package gpu

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("LEASE_DIR"); dir != "" {
		os.Exit(competitor(dir, os.Getenv("LEASE_COUNT")))
	}
	os.Exit(m.Run())
}

// competitor is one of the processes: it takes GPUs, holds them until its stdin
// ends, and gives them back. Whoever finds a mark on a GPU of its own says so.
func competitor(dir, count string) int {
	n, _ := strconv.Atoi(count) // of the test
	m := Open(filepath.Join(dir, "leases"))
	m.taken = func(t Ticket) {
		file, err := os.OpenFile(filepath.Join(dir, "order"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		if err == nil {
			fmt.Fprintln(file, t.Number)
			err = file.Close()
		}
		if err != nil {
			fmt.Println("failed", err)
		}
	}
	waiting := false
	lease, err := m.Acquire(context.Background(), Order{
		Want: Want{Count: n}, Holder: Holder{RunID: "r" + strconv.Itoa(os.Getpid())}, Inventory: madeUpGPUs(8), Wait: 5 * time.Minute,
		Waiting: func(string) {
			if !waiting {
				fmt.Println("waiting")
			}
			waiting = true
		},
		// Its mark goes with the dead process.
		StillUsed: func(_ context.Context, dead Holder, _ time.Time) string {
			marks, err := filepath.Glob(filepath.Join(dir, "mark-*"))
			for _, mark := range marks {
				if text, readErr := os.ReadFile(mark); readErr == nil && string(text) == dead.RunID {
					err = os.Remove(mark)
				}
			}
			if err != nil {
				return err.Error()
			}
			return ""
		},
	})
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	for _, id := range lease.IDs() {
		mark, err := os.OpenFile(filepath.Join(dir, "mark-"+id), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			fmt.Println("failed: GPU", id, "has two holders")
			return 1
		}
		fmt.Fprintf(mark, "r%d", os.Getpid())
		mark.Close()
	}
	fmt.Println("holding", strings.Join(lease.IDs(), " "))
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, id := range lease.IDs() {
		if err := os.Remove(filepath.Join(dir, "mark-"+id)); err != nil {
			fmt.Println("failed", err)
		}
	}
	if err := lease.Release(context.Background()); err != nil {
		fmt.Println("failed", err)
		return 1
	}
	fmt.Println("done")
	return 0
}

// process is a competitor as the test sees it.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	said  chan string
	want  int
}

func startCompetitor(t *testing.T, dir string, count int) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LEASE_DIR="+dir, "LEASE_COUNT="+strconv.Itoa(count), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{cmd: cmd, stdin: stdin, said: make(chan string, 10), want: count}
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			p.said <- lines.Text()
		}
		close(p.said)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // ended already, unless the test failed
		_ = cmd.Wait()
	})
	return p
}

// TestProcessesCompete lets 50 processes compete for 8 GPUs. Some of them are
// killed while they hold GPUs, some while they wait.
func TestProcessesCompete(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	const processes, killedWaiting = 50, 5
	// Until some have been killed while they wait, nobody gets any.
	m := Open(filepath.Join(dir, "leases"))
	all, err := m.Acquire(t.Context(), Order{Want: Want{All: true}, Holder: Holder{RunID: "r" + strconv.Itoa(os.Getpid())}, Inventory: madeUpGPUs(8)})
	require.NoError(t, err)
	type heard struct {
		p    *process
		line string
	}
	news := make(chan heard)
	for i := range processes {
		p := startCompetitor(t, dir, 1+i%3)
		go func() {
			for line := range p.said {
				news <- heard{p, line}
			}
			news <- heard{p, "gone"}
		}()
	}
	killed := map[*process]string{}
	holds := map[string]*process{}
	var done, listed int
	for gone := 0; gone < processes; {
		h := <-news
		word, rest, _ := strings.Cut(h.line, " ")
		switch word {
		case "waiting":
			if len(killed) < killedWaiting {
				killed[h.p] = "waiting"
				require.NoError(t, h.p.cmd.Process.Kill())
			}
		case "holding":
			ids := strings.Fields(rest)
			require.Len(t, ids, h.p.want)
			for _, id := range ids {
				if other := holds[id]; other != nil && killed[other] == "" {
					require.Fail(t, "two holders", "GPU %s", id)
				}
				holds[id] = h.p
			}
			listing, err := m.List(t.Context(), madeUpGPUs(8))
			require.NoError(t, err)
			requireSane(t, listing)
			listed++
			if killed[h.p] == "" && len(killed) < 12 && random.IntN(2) == 0 {
				killed[h.p] = "holding"
				require.NoError(t, h.p.cmd.Process.Kill())
				continue
			}
			require.NoError(t, h.p.stdin.Close())
			for _, id := range ids {
				delete(holds, id)
			}
		case "done":
			done++
		case "gone":
			gone++
			if gone != killedWaiting || all == nil {
				continue
			}
			listing, err := m.List(t.Context(), madeUpGPUs(8))
			require.NoError(t, err)
			requireSane(t, listing)
			for _, waiting := range listing.Queue {
				for p := range killed {
					require.NotEqual(t, p.cmd.Process.Pid, waiting.PID, "the dead do not wait")
				}
			}
			require.NoError(t, all.Release(t.Context()))
			all = nil
		default:
			require.Fail(t, h.line)
		}
	}
	t.Logf("%d done, %d killed, %d listings", done, len(killed), listed)
	require.Greater(t, len(killed), killedWaiting, "some were killed while they held GPUs")
	require.GreaterOrEqual(t, done, processes-len(killed))

	require.Nil(t, all)
	text, err := os.ReadFile(filepath.Join(dir, "order"))
	require.NoError(t, err)
	var order []int
	for _, word := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(word)
		require.NoError(t, err)
		order = append(order, n)
	}
	require.GreaterOrEqual(t, len(order), done)
	require.True(t, slices.IsSorted(order), "GPUs went to %v", order)

	// What the killed left does not keep anybody from anything.
	lease, err := m.Acquire(t.Context(), Order{Want: Want{All: true}, Inventory: madeUpGPUs(8)})
	require.NoError(t, err)
	require.Len(t, lease.IDs(), 8)
	require.NoError(t, lease.Release(t.Context()))
	left, err := filepath.Glob(filepath.Join(dir, "leases", "queue", "*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// requireSane checks a listing against itself.
func requireSane(t *testing.T, l Listing) {
	t.Helper()
	require.Len(t, l.GPUs, 8)
	for _, g := range l.GPUs {
		require.LessOrEqual(t, len(g.Holders), 1, "GPU %s", g.ID)
		require.Equal(t, len(g.Holders) == 1, g.State == StateHeld, "GPU %s is %s", g.ID, g.State)
		for _, holder := range g.Holders {
			require.Equal(t, "r"+strconv.Itoa(holder.PID), holder.RunID)
			require.Contains(t, holder.GPUs, g.ID)
		}
	}
	for i, waiting := range l.Queue {
		require.NotEqual(t, stateHolding, waiting.State)
		require.True(t, i == 0 || l.Queue[i-1].Number < waiting.Number, "the order of arrival")
	}
}
