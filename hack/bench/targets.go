//go:build linux

package main

import "github.com/evalbox/evalbox/sandbox/engine/docker"

// target is a ratio that must be reached.
type target struct {
	name string
	// atLeast means that limit is a minimum.
	atLeast bool
	limit   func(r *report) float64
	// ratio is what was measured. ok is false if it was not.
	ratio func(r *report) (measured spread, ok bool)
}

// targets are those of docs/performance.md.
var targets = []target{
	{"library, cold / docker run --rm", false, byAPI(0.45, 0.60), ratioOf("pass", sideLibrary, sideDocker)},
	{"sandbox run, cold / docker run --rm", false, byAPI(0.55, 0.70), ratioOf("pass", sideCLI, sideDocker)},
	{"pool, Run called to result on disk / docker run --rm", false, always(0.08), ratioOf("pass", sidePool, sideDocker)},
	{"pool, Run called to result on disk / runc run", false, always(0.5), ratioOf("pass", sidePool, sideRunc)},
	{"pool, job sent to report here / docker run --rm", false, always(0.06), ratioOf("pass", sidePoolJob, sideDocker)},
	{"pool, job sent to report here / runc run", false, always(0.35), ratioOf("pass", sidePoolJob, sideRunc)},
	{"keeper, whole process of sandbox run / docker run --rm", false, always(0.2), ratioOf("pass", sideKeeper, sideDocker)},
	{"print(1), pool + preload, job to report / python3 -c in a running container", false, always(0.8), ratioOf("print", sidePreloadJob, sideInside)},
	{"print(1), run_python over MCP with a pool / docker run --rm", false, always(0.2), ratioOf("print", sideAgent, sideDocker)},
	{"numpy, pandas and scikit-learn, pool + preload / docker run --rm", false, always(0.2), ratioOf("import", sidePreload, sideDocker)},
	{"200 scripts, rate of sandbox batch -j 2 / xargs -P 2 docker run --rm", true, byStorage(3, 2.2), ratioOf("batch", sideXargs, sideBatch)},
	{"init of a waiting container / 3 MB", false, always(1), shareOf("memory", sideInit, 3e6/1024, residentKiB)},
	{"100 MB of output, rate of sandbox run / docker run --rm", true, always(1), ratioOf("output", sideDocker, sideCLI)},
	{"100 MB of output, peak memory of sandbox run / 48 MiB", false, always(1), shareOf("output", sideCLI, 48<<10, peakKiB)},
	{"one run after 1,000 / after 10", false, always(1.1), ratioOf("growth", sideThousand, sideTen)},
}

func always(limit float64) func(*report) float64 { return func(*report) float64 { return limit } }

// byAPI is a limit for Docker 20.10, and one for later engines.
func byAPI(floor, current float64) func(*report) float64 {
	return func(r *report) float64 {
		if r.Engine.API == docker.OldestAPI {
			return floor
		}
		return current
	}
}

// byStorage is a limit for storage in the kernel, and one for fuse-overlayfs.
func byStorage(kernel, fuse float64) func(*report) float64 {
	return func(r *report) float64 {
		if r.Engine.Storage == "fuse-overlayfs" {
			return fuse
		}
		return kernel
	}
}

func ratioOf(name, side, against string) func(*report) (spread, bool) {
	return func(r *report) (spread, bool) {
		c := r.find(name)
		if c == nil {
			return spread{}, false
		}
		return c.ratio(side, against, values)
	}
}

// shareOf compares memory with a limit in KiB.
func shareOf(name, side string, kib float64, of func(*samples) float64) func(*report) (spread, bool) {
	return func(r *report) (spread, bool) {
		c := r.find(name)
		if c == nil || c.side(side) == nil {
			return spread{}, false
		}
		share := of(c.side(side)) / kib
		return spread{share, share, share}, true
	}
}

func residentKiB(s *samples) float64 { return spreadOf(s.Values).median }

func peakKiB(s *samples) float64 { return float64(s.PeakKiB) }

// row returns the cells of a target, or nil if it was not measured.
func (t target) row(r *report) []string {
	limit, sign := t.limit(r), "≤"
	if t.atLeast {
		sign = "≥"
	}
	measured, ok := t.ratio(r)
	if !ok {
		return nil
	}
	cells := []string{t.name, sign + " " + figure(limit)}
	verdict := "missed"
	if measured.median <= limit != t.atLeast || measured.median == limit {
		verdict = "ok"
	}
	if measured.low == measured.high {
		return append(cells, figure(measured.median), verdict)
	}
	return append(cells, measured.String(), verdict)
}

// targetHead are the headings of the cells of a target.
var targetHead = []string{"target", "limit", "measured", "result"}

// targets returns the cells of the targets that were measured.
func (r *report) targets() (rows [][]string) {
	for _, t := range targets {
		if row := t.row(r); row != nil {
			rows = append(rows, row)
		}
	}
	return rows
}
