package metrics

import (
	"slices"

	"github.com/evalbox/evalbox/result"
)

// sum adds measurements up. The average of a rate is over time, since the interval may change.
type sum struct {
	last, interval     float64
	cpuTime, cpuWall   float64
	peakCPUs           float64
	processes, disk    int64
	gpus               []result.GPUMetrics
	gpuTime, gpuPeriod map[string]float64
}

// measure adds a measurement; other points have no meaning here.
func (s *sum) measure(p Point) {
	u := p.Usage
	if u == nil {
		return
	}
	period := max(p.Seconds-s.last, 0)
	s.last, s.interval = p.Seconds, period
	if u.CPUs != nil {
		s.cpuTime += *u.CPUs * period
		s.cpuWall += period
		s.peakCPUs = max(s.peakCPUs, *u.CPUs)
	}
	if u.Processes != nil {
		s.processes = max(s.processes, *u.Processes)
	}
	if u.DiskBytes != nil {
		s.disk = max(s.disk, *u.DiskBytes)
	}
	for _, g := range u.GPUs {
		s.gpu(g, period)
	}
}

func (s *sum) gpu(g GPU, period float64) {
	if s.gpuTime == nil {
		s.gpuTime, s.gpuPeriod = map[string]float64{}, map[string]float64{}
	}
	i := slices.IndexFunc(s.gpus, func(m result.GPUMetrics) bool { return m.ID == g.ID })
	if i < 0 {
		i = len(s.gpus)
		s.gpus = append(s.gpus, result.GPUMetrics{ID: g.ID})
	}
	m := &s.gpus[i]
	m.PeakUtilization = max(m.PeakUtilization, g.Utilization)
	m.PeakMemoryBytes = max(m.PeakMemoryBytes, g.MemoryBytes)
	s.gpuTime[g.ID] += g.Utilization * period
	s.gpuPeriod[g.ID] += period
}

func (s *sum) result() *result.Metrics {
	m := &result.Metrics{IntervalSeconds: rounded(s.interval), MeanCPUs: rounded(ratio(s.cpuTime, s.cpuWall)), PeakCPUs: s.peakCPUs,
		PeakProcesses: s.processes, PeakDiskBytes: s.disk, GPUs: []result.GPUMetrics{}}
	for _, g := range s.gpus {
		g.MeanUtilization = rounded(ratio(s.gpuTime[g.ID], s.gpuPeriod[g.ID]))
		m.GPUs = append(m.GPUs, g)
	}
	return m
}

// ratio is 0 of nothing.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
