package policy

import (
	"cmp"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fieldErrors are all errors that a joined error holds.
func fieldErrors(t *testing.T, err error) map[string]*FieldError {
	t.Helper()
	found := map[string]*FieldError{}
	var walk func(error)
	walk = func(err error) {
		switch e := err.(type) { //nolint:errorlint // walks the tree itself
		case nil:
		case *FieldError:
			found[e.Field] = e
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				walk(inner)
			}
		default:
			require.Fail(t, "not a FieldError", "%T %v", err, err)
		}
	}
	walk(err)
	return found
}

// sane is a full set of limits that no rule refuses; all values differ.
func sane() Limits {
	return Limits{
		Timeout: 11 * time.Minute, SoftTimeout: 3 * time.Minute, Grace: 7 * time.Second, Memory: 900 * MiB, CPUs: 3, PIDs: 333, NoFile: 4444,
		Shm: 55 * MiB, Tmp: 66 * MiB, Scratch: 77 * MiB, Disk: 88 * MiB, Output: 99 * MiB, StreamFile: 111 * MiB,
		CaptureStdout: 122 * KiB, CaptureStderr: 133 * KiB, OutputFiles: 144, OutputDepth: 15,
		OutputFile: 166 * MiB, OutputTotal: 177 * MiB,
	}
}

// eachLimit calls f with every field of Limits and its row of the table.
func eachLimit(t *testing.T, f func(t *testing.T, index int, row Limit[Limits])) {
	typ := reflect.TypeFor[Limits]()
	require.Len(t, limitTable, typ.NumField(), "a limit was added or removed: give it a row")
	for i, row := range limitTable {
		var l Limits
		require.Same(t, field(&l, i).Addr().Interface(), row.Field(&l), typ.Field(i).Name)
		t.Run(row.Name, func(t *testing.T) { f(t, i, row) })
	}
}

// field is one limit of l, for setting.
func field(l *Limits, index int) reflect.Value { return reflect.ValueOf(l).Elem().Field(index) }

// setNumber sets a limit of any kind to n.
func setNumber(v reflect.Value, n int64) {
	if v.Kind() == reflect.Float64 {
		v.SetFloat(float64(n))
		return
	}
	v.SetInt(n)
}

func TestApplyKeepsWhatWasAsked(t *testing.T) {
	got, err := Policy{Defaults: Default()}.Apply(sane())
	require.NoError(t, err)
	require.Equal(t, sane(), got)
	for i := range reflect.TypeFor[Limits]().NumField() {
		asked := sane()
		require.False(t, field(&asked, i).IsZero(), "sane must set every limit, or this test says nothing")
	}
}

func TestApplyFillsFromPolicyThenFromBuiltIn(t *testing.T) {
	eachLimit(t, func(t *testing.T, i int, _ Limit[Limits]) {
		full := sane()

		var onlyThis Limits
		field(&onlyThis, i).Set(field(&full, i))
		got, err := Policy{Defaults: onlyThis}.Apply(Limits{Memory: cmp.Or(onlyThis.Memory, 900*MiB)})
		require.NoError(t, err)
		require.Equal(t, field(&full, i).Interface(), field(&got, i).Interface(), "the policy's default")

		asked := full
		field(&asked, i).SetZero()
		got, err = Policy{}.Apply(asked)
		require.NoError(t, err)
		builtIn := Default()
		if want := field(&builtIn, i); !want.IsZero() {
			require.Equal(t, want.Interface(), field(&got, i).Interface(), "the built-in default")
		}
		field(&got, i).SetZero()
		require.Equal(t, asked, got, "the other limits stay as asked")
	})
}

func TestApplyOfNothing(t *testing.T) {
	got, err := Policy{}.Apply(Limits{})
	require.NoError(t, err)
	require.Equal(t, Limits{
		Timeout: time.Hour, Grace: 5 * time.Second, Memory: 2 * GiB, CPUs: 2, PIDs: 1024, NoFile: 0,
		Shm: GiB, Tmp: 512 * MiB, Scratch: 512 * MiB, Disk: 20 * GiB, Output: 0,
		StreamFile: 100 * MiB, CaptureStdout: MiB, CaptureStderr: 256 * KiB,
		OutputFiles: 10_000, OutputDepth: 32, OutputFile: 10 * GiB, OutputTotal: 20 * GiB,
	}, got)

	again, err := Policy{}.Apply(got)
	require.NoError(t, err)
	require.Equal(t, got, again, "effective limits are their own effective limits")
}

func TestDerivedLimits(t *testing.T) {
	for name, c := range map[string]struct {
		asked             Limits
		pids              int64
		shm, tmp, scratch Size
	}{
		"smallest memory":        {Limits{Memory: 6 * MiB}, 1024, 3 * MiB, 1536 * KiB, 1536 * KiB},
		"1 GiB":                  {Limits{Memory: GiB}, 1024, 512 * MiB, 256 * MiB, 256 * MiB},
		"just below 4 GiB":       {Limits{Memory: 4*GiB - 4096}, 1024, 2*GiB - 2048, GiB - 1024, GiB - 1024},
		"4 GiB":                  {Limits{Memory: 4 * GiB}, 1024, 2 * GiB, GiB, GiB},
		"16 GiB":                 {Limits{Memory: 16 * GiB}, 1024, 8 * GiB, 4 * GiB, 4 * GiB},
		"shm is capped":          {Limits{Memory: 256 * GiB}, 1024, 8 * GiB, 64 * GiB, 64 * GiB},
		"half a processor":       {Limits{CPUs: 0.5}, 1024, GiB, 512 * MiB, 512 * MiB},
		"64 processors":          {Limits{CPUs: 64}, 1024, GiB, 512 * MiB, 512 * MiB},
		"65 processors":          {Limits{CPUs: 65}, 1040, GiB, 512 * MiB, 512 * MiB},
		"256 processors":         {Limits{CPUs: 256}, 4096, GiB, 512 * MiB, 512 * MiB},
		"fractions count":        {Limits{CPUs: 100.5}, 1608, GiB, 512 * MiB, 512 * MiB},
		"asked is not derived":   {Limits{PIDs: 5, Shm: MiB, Tmp: 2 * MiB, Scratch: 3 * MiB}, 5, MiB, 2 * MiB, 3 * MiB},
		"small shm is respected": {Limits{Memory: 64 * GiB, Shm: 64 * MiB}, 1024, 64 * MiB, 16 * GiB, 16 * GiB},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Policy{}.Apply(c.asked)
			require.NoError(t, err)
			require.Equal(t, c.pids, got.PIDs)
			require.Equal(t, c.shm, got.Shm, "shm")
			require.Equal(t, c.tmp, got.Tmp, "tmp")
			require.Equal(t, c.scratch, got.Scratch, "scratch")
		})
	}
}

// A DataLoader needs a GiB of shared memory wherever there is memory for it.
func TestSharedMemoryIsAtLeastOneGiBFrom4GiB(t *testing.T) {
	for memory := 4 * GiB; memory < 300*GiB; memory += GiB + 4096 {
		got, err := Policy{}.Apply(Limits{Memory: memory})
		require.NoError(t, err)
		require.GreaterOrEqual(t, got.Shm, GiB, memory)
		require.LessOrEqual(t, got.Shm, memory/2, memory)
	}
}

func TestCeilings(t *testing.T) {
	eachLimit(t, func(t *testing.T, i int, row Limit[Limits]) {
		asked := sane()

		var p Policy
		field(&p.Max, i).Set(field(&asked, i))
		got, err := p.Apply(asked)
		require.NoError(t, err, "exactly the ceiling is allowed")
		require.Equal(t, asked, got)

		if v := field(&p.Max, i); v.Kind() == reflect.Float64 {
			v.SetFloat(math.Nextafter(v.Float(), 0))
		} else {
			v.SetInt(v.Int() - 1)
		}
		got, err = p.Apply(asked)
		require.Zero(t, got, "no limits come with an error")
		found := fieldErrors(t, err)
		require.Len(t, found, 1, "%v", err)
		require.Contains(t, found, row.Name)
		require.Contains(t, found[row.Name].Rule, "maximum")
	})
}

// A policy that is stricter than a default must not refuse every run.
func TestDefaultsAreLoweredToTheCeilings(t *testing.T) {
	eachLimit(t, func(t *testing.T, i int, row Limit[Limits]) {
		asked := sane()
		ceiling := field(&asked, i).Interface()
		defaults := Limits{}
		field(&defaults, i).Set(field(&asked, i))
		v := field(&defaults, i)
		setNumber(v, 2*number(v))
		field(&asked, i).SetZero()
		p := Policy{Defaults: defaults}
		field(&p.Max, i).Set(reflect.ValueOf(ceiling))
		got, err := p.Apply(asked)
		require.NoError(t, err)
		require.Equal(t, ceiling, field(&got, i).Interface(), "the policy's default is lowered")

		row.bounds.fill(&asked, &defaults)
		_, err = p.Apply(asked)
		require.Contains(t, fieldErrors(t, err), row.Name, "what was asked for is not")
	})
}

func number(v reflect.Value) int64 {
	if v.Kind() == reflect.Float64 {
		return int64(v.Float())
	}
	return v.Int()
}

func TestDerivedLimitsFollowFromTheLoweredOnes(t *testing.T) {
	got, err := Policy{Max: Limits{Memory: 512 * MiB}}.Apply(Limits{})
	require.NoError(t, err)
	require.Equal(t, []Size{512 * MiB, 256 * MiB, 128 * MiB, 128 * MiB}, []Size{got.Memory, got.Shm, got.Tmp, got.Scratch})

	got, err = Policy{Defaults: Limits{CPUs: 128}, Max: Limits{CPUs: 2, PIDs: 100}}.Apply(Limits{})
	require.NoError(t, err)
	require.Equal(t, int64(100), got.PIDs)
}

// Where zero means "as much as there is", asking for nothing must not get around
// a ceiling.
func TestNoLimitIsAboveEveryCeiling(t *testing.T) {
	got, err := Policy{Max: Limits{Output: 10 * MiB}}.Apply(Limits{})
	require.NoError(t, err)
	require.Equal(t, 10*MiB, got.Output)

	got, err = Policy{Max: Limits{Output: 10 * MiB}, Defaults: Limits{Output: 3 * MiB}}.Apply(Limits{})
	require.NoError(t, err)
	require.Equal(t, 3*MiB, got.Output)
}

func TestAbsurdLimits(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		asked Limits
		field string
	}{
		"negative time":           {Limits{Timeout: -time.Second}, "timeout"},
		"no time at all":          {Limits{Timeout: time.Microsecond}, "timeout"},
		"more than a year":        {Limits{Timeout: 366*day + 1}, "timeout"},
		"end of time":             {Limits{Timeout: math.MaxInt64}, "timeout"},
		"negative grace":          {Limits{Grace: -1}, "grace"},
		"hours of grace":          {Limits{Grace: time.Hour + 1}, "grace"},
		"negative memory":         {Limits{Memory: -1, Shm: MiB, Tmp: MiB, Scratch: MiB}, "memory"},
		"memory below the engine": {Limits{Memory: 6*MiB - 1, Shm: MiB, Tmp: MiB, Scratch: MiB}, "memory"},
		"negative processors":     {Limits{CPUs: -1}, "cpus"},
		"a sliver of a processor": {Limits{CPUs: 0.009}, "cpus"},
		"not a number":            {Limits{CPUs: math.NaN()}, "cpus"},
		"infinite processors":     {Limits{CPUs: math.Inf(1), PIDs: 5}, "cpus"},
		"minus infinity":          {Limits{CPUs: math.Inf(-1), PIDs: 5}, "cpus"},
		"too many processors":     {Limits{CPUs: 4096.01}, "cpus"},
		"negative pids":           {Limits{PIDs: -1}, "pids-limit"},
		"pids above the kernel":   {Limits{PIDs: 4<<20 + 1}, "pids-limit"},
		"negative files":          {Limits{NoFile: -1}, "nofile"},
		"too many files":          {Limits{NoFile: 1<<30 + 1}, "nofile"},
		"negative shm":            {Limits{Shm: -1}, "shm-size"},
		"tiny shm":                {Limits{Shm: 64*KiB - 1}, "shm-size"},
		"negative tmp":            {Limits{Tmp: -1}, "tmp-size"},
		"tiny tmp":                {Limits{Tmp: 1}, "tmp-size"},
		"negative scratch":        {Limits{Scratch: -1}, "scratch-size"},
		"tiny scratch":            {Limits{Scratch: 1}, "scratch-size"},
		"negative disk":           {Limits{Disk: -1}, "disk"},
		"tiny disk":               {Limits{Disk: 4*KiB - 1}, "disk"},
		"negative output limit":   {Limits{Output: -1}, "output-limit"},
		"negative stream file":    {Limits{StreamFile: -1}, "stream-file"},
		"negative stdout":         {Limits{CaptureStdout: -1}, "capture-stdout"},
		"negative stderr":         {Limits{CaptureStderr: -1}, "capture-stderr"},
		"negative output files":   {Limits{OutputFiles: -1}, "output-files"},
		"too many output files":   {Limits{OutputFiles: 10_000_001}, "output-files"},
		"negative depth":          {Limits{OutputDepth: -1}, "output-depth"},
		"too deep":                {Limits{OutputDepth: 1001}, "output-depth"},
		"negative soft timeout":   {Limits{SoftTimeout: -1}, "soft-timeout"},
		"negative output file":    {Limits{OutputFile: -1}, "output-file"},
		"negative output total":   {Limits{OutputTotal: -1}, "output-total"},
	} {
		t.Run(name, func(t *testing.T) {
			for source, apply := range map[string]func() (Limits, error){
				"asked":   func() (Limits, error) { return Policy{}.Apply(c.asked) },
				"default": func() (Limits, error) { return Policy{Defaults: c.asked}.Apply(Limits{}) },
			} {
				got, err := apply()
				found := fieldErrors(t, err)
				require.Len(t, found, 1, "%s: %v", source, err)
				require.Contains(t, found, c.field, source)
				require.Zero(t, got, source)
			}
		})
	}
}

// TestSoftTimeoutIsLessThanTimeout: what was asked for is refused, a default is left out.
func TestSoftTimeoutIsLessThanTimeout(t *testing.T) {
	for name, test := range map[string]struct {
		asked, defaults, max Limits
		want                 time.Duration
		refused              string
	}{
		"none":                       {want: 0},
		"less":                       {asked: Limits{Timeout: time.Minute, SoftTimeout: 59 * time.Second}, want: 59 * time.Second},
		"less than the default":      {asked: Limits{SoftTimeout: 59 * time.Minute}, want: 59 * time.Minute},
		"equal":                      {asked: Limits{Timeout: time.Minute, SoftTimeout: time.Minute}, refused: "less than the time limit of 1m0s"},
		"less by too little":         {asked: Limits{Timeout: time.Minute, SoftTimeout: time.Minute - time.Microsecond}, refused: "less than"},
		"more than a lowered limit":  {asked: Limits{SoftTimeout: 50 * time.Minute}, max: Limits{Timeout: time.Minute}, refused: "less than the time limit of 1m0s"},
		"a default":                  {defaults: Limits{Timeout: time.Minute, SoftTimeout: 50 * time.Second}, want: 50 * time.Second},
		"a default that is too long": {asked: Limits{Timeout: time.Second}, defaults: Limits{SoftTimeout: 50 * time.Second}, want: 0},
		"above its ceiling":          {asked: Limits{SoftTimeout: time.Minute}, max: Limits{SoftTimeout: time.Second}, refused: "above the policy's maximum of 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Policy{Defaults: test.defaults, Max: test.max}.Apply(test.asked)
			if test.refused != "" {
				require.ErrorContains(t, err, test.refused)
				require.Len(t, fieldErrors(t, err), 1)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got.SoftTimeout)
		})
	}
}

func TestApplyNamesEveryBrokenRule(t *testing.T) {
	var asked Limits
	for i := range reflect.TypeFor[Limits]().NumField() {
		setNumber(field(&asked, i), -5)
	}
	_, err := Policy{}.Apply(asked)
	found := fieldErrors(t, err)
	for _, row := range limitTable {
		require.Contains(t, found, row.Name)
	}
	require.Len(t, found, len(limitTable))

	var one *FieldError
	require.ErrorAs(t, err, &one)
}

func TestApplyChangesNothing(t *testing.T) {
	p := Policy{Defaults: sane(), Max: sane()}
	before := p
	_, err := p.Apply(Limits{})
	require.NoError(t, err)
	require.Equal(t, before, p)
}

func TestFieldErrorText(t *testing.T) {
	require.EqualError(t, &FieldError{Field: "memory", Value: "1KiB", Rule: "too small"}, "memory 1KiB: too small")
	require.EqualError(t, &FieldError{Field: "env", Rule: "too many"}, "env: too many")

	_, err := Policy{Max: Limits{Memory: GiB}}.Apply(Limits{Memory: 4 * GiB})
	require.EqualError(t, err, "memory 4GiB: above the policy's maximum of 1GiB")
	_, err = Policy{}.Apply(Limits{Timeout: -time.Second})
	require.EqualError(t, err, "timeout -1s: must be between 1ms and 8784h0m0s")
}

func TestJoin(t *testing.T) {
	field := &FieldError{Field: "memory", Rule: "is too small"}
	require.NoError(t, Join(nil, nil))
	require.Same(t, field, Join(nil, field), "its type says what is wrong")
	require.EqualError(t, Join(field, nil, field), "memory: is too small\nmemory: is too small")
}
