package result

// Metrics sums up the measurements of a run. The file metrics.jsonl of its record has the points.
type Metrics struct {
	// Points is the number of lines of the file, and IntervalSeconds the time between the last two
	// measurements of the machine: a long run is measured less often.
	Points          int     `json:"points"`
	IntervalSeconds float64 `json:"interval_seconds"`
	// CPUs are the processors in use, on average and at most.
	MeanCPUs float64 `json:"mean_cpus"`
	PeakCPUs float64 `json:"peak_cpus"`
	// PeakProcesses and PeakDiskBytes are the highest values that were measured; 0 if they were not
	// measured.
	PeakProcesses int64 `json:"peak_processes"`
	PeakDiskBytes int64 `json:"peak_disk_bytes"`
	// GPUs are those of the run, if they could be measured.
	GPUs []GPUMetrics `json:"gpus"`
	// Custom has the metrics that the program printed, sorted by name; see [MetricScanner]. They are
	// the program's own claims.
	Custom []CustomMetric `json:"custom"`
	// Rejected counts lines of metrics that exceeded a bound or had no number, and are in no
	// other field.
	Rejected int64 `json:"rejected"`
}

// GPUMetrics sums up the measurements of one GPU. Utilization is between 0 and 1.
type GPUMetrics struct {
	ID              string  `json:"id"`
	MeanUtilization float64 `json:"mean_utilization"`
	PeakUtilization float64 `json:"peak_utilization"`
	PeakMemoryBytes int64   `json:"peak_memory_bytes"`
}

// CustomMetric sums up one metric that a program printed.
type CustomMetric struct {
	Name string `json:"name"`
	// Count is the number of values, and NotFinite that of the NaN and infinite ones among them.
	Count     int64 `json:"count"`
	NotFinite int64 `json:"not_finite"`
	// Last, Min and Max are those of the finite values; nil without one. LastStep is the step of
	// Last; nil if the program printed none.
	Last     *float64 `json:"last"`
	LastStep *float64 `json:"last_step"`
	Min      *float64 `json:"min"`
	Max      *float64 `json:"max"`
}
