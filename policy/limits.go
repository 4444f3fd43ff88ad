package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/evalbox/evalbox/internal/strict"
)

// Limits bound one run. In a request the zero value of a field means "the
// policy's default"; after [Policy.Apply] every field holds its effective value.
type Limits struct {
	// Timeout bounds the program's wall-clock time, and nothing else: pulling
	// an image or creating the container does not count.
	Timeout time.Duration `json:"-"`
	// SoftTimeout, unless zero, is the time after which the main process gets a signal once, as
	// a request to finish before Timeout. It is less than Timeout. A default that is not less
	// counts as zero.
	SoftTimeout time.Duration `json:"-"`
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

	// Disk bounds the files that the program holds in ./final while it runs.
	Disk Size `json:"disk,omitzero"`
	// Output ends a run that has written more than this to stdout and stderr together. Zero
	// means that such a run goes on, and that its output is cut.
	Output Size `json:"output,omitzero"`

	// StreamFile bounds the file that keeps one stream (EX-038).
	StreamFile Size `json:"stream_file,omitzero"`
	// CaptureStdout and CaptureStderr bound the text of a stream in the result
	// (CX-05).
	CaptureStdout Size `json:"capture_stdout,omitzero"`
	CaptureStderr Size `json:"capture_stderr,omitzero"`

	// OutputFiles, OutputDepth, OutputFile and OutputTotal bound the collection of ./final:
	// its entries, its directory levels, the bytes of one file and of all files.
	OutputFiles int  `json:"output_files,omitzero"`
	OutputDepth int  `json:"output_depth,omitzero"`
	OutputFile  Size `json:"output_file,omitzero"`
	OutputTotal Size `json:"output_total,omitzero"`
}

// limitsWire is the wire form of [Limits], with times in seconds.
type limitsWire struct {
	TimeoutSeconds     float64 `json:"timeout_seconds,omitzero"`
	SoftTimeoutSeconds float64 `json:"soft_timeout_seconds,omitzero"`
	GraceSeconds       float64 `json:"grace_seconds,omitzero"`
	*limitsFields
}

type limitsFields Limits

// MarshalJSON writes times in seconds and sizes as text, and leaves out zero fields.
func (l Limits) MarshalJSON() ([]byte, error) {
	return json.Marshal(limitsWire{l.Timeout.Seconds(), l.SoftTimeout.Seconds(), l.Grace.Seconds(), (*limitsFields)(&l)})
}

// UnmarshalJSON refuses unknown fields.
func (l *Limits) UnmarshalJSON(text []byte) error {
	wire := limitsWire{limitsFields: (*limitsFields)(l)}
	err := strict.JSON(text, &wire)
	l.Timeout, l.SoftTimeout, l.Grace = Seconds(wire.TimeoutSeconds), Seconds(wire.SoftTimeoutSeconds), Seconds(wire.GraceSeconds)
	return err
}

// Seconds is a duration of s seconds, to the nanosecond.
func Seconds(s float64) time.Duration {
	return time.Duration(math.Round(s * float64(time.Second)))
}

// Default returns the limits of evalbox where neither request nor policy has any.
func Default() Limits { return standard(limitTable) }

const (
	// The engine refuses less than 6 MiB; Python alone needs more.
	minMemory = 6 * MiB
	// minMount is the least size of a file system in memory.
	minMount = 64 * KiB
	// maxTimeout keeps deadlines far from the end of time.Duration.
	maxTimeout = 366 * 24 * time.Hour
)

// LimitTable returns the row of every field of [Limits], in the order of the fields.
func LimitTable() []Limit[Limits] { return slices.Clone(limitTable) }

var limitTable = []Limit[Limits]{
	{Name: "timeout", Help: "the program's wall-clock time, such as 90s or 2h",
		bounds: in(func(l *Limits) *time.Duration { return &l.Timeout }, time.Hour, time.Millisecond, maxTimeout)},
	{Name: "soft-timeout", Help: "ask the program to finish after this time, such as 50m", Zero: "none",
		bounds: in(func(l *Limits) *time.Duration { return &l.SoftTimeout }, 0, 0, maxTimeout)},
	{Name: "grace", Help: "time between SIGTERM and SIGKILL",
		bounds: in(func(l *Limits) *time.Duration { return &l.Grace }, 5*time.Second, time.Millisecond, time.Hour)},
	{Name: "memory", Letter: "m", Help: "memory of all processes, such as 512m or 8g",
		bounds: in(func(l *Limits) *Size { return &l.Memory }, 2*GiB, minMemory, 0)},
	// The engine's quota has a resolution of 0.01 processors.
	{Name: "cpus", Help: "processors, such as 0.5 or 4",
		bounds: in(func(l *Limits) *float64 { return &l.CPUs }, 2, 0.01, 4096)},
	// The program alone is one; with an init in its container it takes one more.
	{Name: "pids-limit", Help: "processes and threads", Zero: "auto",
		bounds: in(func(l *Limits) *int64 { return &l.PIDs }, 0, 1, 4<<20)},
	{Name: "nofile", Zero: "auto",
		bounds: in(func(l *Limits) *int64 { return &l.NoFile }, 0, 0, 1<<30)},
	{Name: "shm-size", Help: "size of /dev/shm", Zero: "auto", memory: true,
		bounds: in(func(l *Limits) *Size { return &l.Shm }, 0, minMount, 0)},
	{Name: "tmp-size", Help: "size of /tmp", Zero: "auto", memory: true,
		bounds: in(func(l *Limits) *Size { return &l.Tmp }, 0, minMount, 0)},
	{Name: "scratch-size", Help: "size of the working directory", Zero: "auto", memory: true,
		bounds: in(func(l *Limits) *Size { return &l.Scratch }, 0, minMount, 0)},
	{Name: "disk", Help: "what the program may hold in ./final",
		bounds: in(func(l *Limits) *Size { return &l.Disk }, 20*GiB, 4*KiB, 0)},
	{Name: "output-limit", Help: "end a run that prints more than this", Zero: "none",
		bounds: in(func(l *Limits) *Size { return &l.Output }, 0, 0, 0)},
	{Name: "stream-file", bounds: in(func(l *Limits) *Size { return &l.StreamFile }, 100*MiB, 0, 0)},
	{Name: "capture-stdout", bounds: in(func(l *Limits) *Size { return &l.CaptureStdout }, MiB, 0, 0)},
	{Name: "capture-stderr", bounds: in(func(l *Limits) *Size { return &l.CaptureStderr }, 256*KiB, 0, 0)},
	{Name: "output-files", bounds: in(func(l *Limits) *int { return &l.OutputFiles }, 10_000, 0, 10_000_000)},
	{Name: "output-depth", bounds: in(func(l *Limits) *int { return &l.OutputDepth }, 32, 0, 1000)},
	{Name: "output-file", bounds: in(func(l *Limits) *Size { return &l.OutputFile }, 10*GiB, 0, 0)},
	{Name: "output-total", bounds: in(func(l *Limits) *Size { return &l.OutputTotal }, 20*GiB, 0, 0)},
}

// derived returns l with the limits that follow from memory and processors.
func (l Limits) derived() Limits {
	l.PIDs = cmp.Or(l.PIDs, max(1024, int64(16*l.CPUs)))
	// The floor keeps a refused memory limit from being reported four times.
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

// A Limit is one row of the table of [Limits] or [EgressLimits]. Everything that is done
// for each limit loops over the table.
type Limit[L any] struct {
	// Name is the name of the limit in messages and of its flag; the key in a settings
	// file has "_" for "-".
	Name string
	// Letter is the short form of the flag; it may be empty.
	Letter string
	// Help is the help of the flag; a limit without one has no flag.
	Help string
	// Zero is the word for the zero value; empty if the limit cannot be zero.
	Zero string

	// memory marks a file system in memory.
	memory bool
	bounds bounds[L]
}

// Field returns the pointer to the limit in limits: a *time.Duration, *[Size], *float64,
// *int64 or *int.
func (r Limit[L]) Field(limits *L) any { return r.bounds.pointer(limits) }

// bounds is the part of a row that depends on the type of the limit.
type bounds[L any] interface {
	pointer(limits *L) any
	// setDefault sets the limit to its default.
	setDefault(limits *L)
	// fill sets the limit to that of base if it is zero.
	fill(limits, base *L)
	// lower lowers the limit to its ceiling unless it was asked for: a policy with a
	// ceiling below a default must not refuse every run.
	lower(limits, asked, ceiling *L)
	// check reports an absurd limit, and below one that is above its ceiling.
	check(name string, limits *L) error
	below(name string, limits, ceiling *L) error
}

type quantity interface {
	int | int64 | float64 | Size | time.Duration
}

// bounded is a limit with its default and its inclusive bounds. A high of zero means no bound.
type bounded[L any, T quantity] struct {
	of                  func(*L) *T
	standard, low, high T
}

func in[L any, T quantity](of func(*L) *T, standard, low, high T) bounds[L] {
	return bounded[L, T]{of, standard, low, high}
}

func (b bounded[L, T]) pointer(limits *L) any { return b.of(limits) }

func (b bounded[L, T]) setDefault(limits *L) { *b.of(limits) = b.standard }

func (b bounded[L, T]) fill(limits, base *L) { *b.of(limits) = cmp.Or(*b.of(limits), *b.of(base)) }

func (b bounded[L, T]) lower(limits, asked, ceiling *L) {
	if *b.of(asked) == 0 && *b.of(ceiling) > 0 {
		*b.of(limits) = min(*b.of(limits), *b.of(ceiling))
	}
}

func (b bounded[L, T]) check(name string, limits *L) error {
	value := *b.of(limits)
	if value >= b.low && (b.high == 0 || value <= b.high) { // NaN is not
		return nil
	}
	rule := fmt.Sprintf("must be between %v and %v", b.low, b.high)
	if b.high == 0 {
		rule = fmt.Sprintf("must be at least %v", b.low)
	}
	hint := ""
	if n, ok := any(value).(Size); ok && n > 0 && n < KiB {
		hint = fmt.Sprintf("%d means %d bytes: did you mean %dm or %dg?", n, n, n, n)
	}
	return &FieldError{Field: name, Value: fmt.Sprint(value), Rule: rule, Hint: hint}
}

func (b bounded[L, T]) below(name string, limits, ceiling *L) error {
	value, most := *b.of(limits), *b.of(ceiling)
	if most == 0 || value <= most {
		return nil
	}
	return &FieldError{Field: name, Value: fmt.Sprint(value), Rule: fmt.Sprintf("above the policy's maximum of %v", most)}
}

// standard returns the defaults of a table.
func standard[L any](table []Limit[L]) (limits L) {
	for _, row := range table {
		row.bounds.setDefault(&limits)
	}
	return limits
}

// filled returns asked with its zero fields taken from defaults, then from the table, and
// lowered to the ceilings.
func filled[L any](table []Limit[L], asked, defaults, ceiling L) L {
	limits, last := asked, standard(table)
	for _, row := range table {
		row.bounds.fill(&limits, &defaults)
		row.bounds.fill(&limits, &last)
		row.bounds.lower(&limits, &asked, &ceiling)
	}
	return limits
}
