package gpu

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// madeUpGPUs is an inventory of n GPUs that nobody looks at.
func madeUpGPUs(n int) Inventory {
	inv := Inventory{Known: true, driver: spec.DriverNVIDIA}
	for i := range n {
		inv.Devices = append(inv.Devices, Device{ID: strconv.Itoa(i), TotalBytes: Unknown, UsedBytes: Unknown})
	}
	return inv
}

func TestInventory(t *testing.T) {
	t4 := func(id string) Device {
		return Device{ID: id, UUID: "GPU-" + id, Name: "Tesla T4", TotalBytes: 1, UsedBytes: 0}
	}
	smiError := &SMIError{Text: "Failed to initialize NVML: Unknown Error"}
	for name, test := range map[string]struct {
		sources Sources
		ids     []string
		known   bool
		probed  bool
		err     string
	}{
		"runtime": {Sources{Driver: spec.DriverNVIDIA, Local: true, Probed: []Device{t4("1"), t4("0")}}, []string{"0", "1"}, true, true, ""},
		"CDI with nvidia-smi": {Sources{Driver: spec.DriverCDI, Local: true, Probed: []Device{t4("0"), t4("1")},
			CDI: []string{cdiKind + "0", cdiKind + "1", cdiKind + "all", "amd.com/gpu=0"}}, []string{"0", "1"}, true, true, ""},
		"CDI by UUID": {Sources{Driver: spec.DriverCDI, Local: true, Probed: []Device{t4("0")}, CDI: []string{cdiKind + "GPU-0"}}, []string{"0"}, true, true, ""},
		"CDI without nvidia-smi": {Sources{Driver: spec.DriverCDI, Local: true, ProbeErr: ErrNoTool,
			CDI: []string{cdiKind + "10", cdiKind + "2", cdiKind + "02", cdiKind + "-1", cdiKind + "0:1", cdiKind + "all"}}, []string{"2", "10"}, true, false, ""},
		"nvidia-smi does not list it": {Sources{Driver: spec.DriverCDI, Local: true, Probed: []Device{t4("0")}, CDI: []string{cdiKind + "0", cdiKind + "1"}},
			[]string{"0", "1!"}, true, true, ""},
		"the engine does not list it": {Sources{Driver: spec.DriverCDI, Local: true, Probed: []Device{t4("0"), t4("1")}, CDI: []string{cdiKind + "1"}},
			[]string{"1"}, true, true, ""},
		"CDI not listed": {Sources{Driver: spec.DriverCDI, Local: true, Probed: []Device{t4("0")}}, []string{"0"}, true, true, ""},
		"nothing listed": {Sources{Driver: spec.DriverCDI, Local: true, ProbeErr: ErrNoTool, CDI: []string{cdiKind + "all"}}, nil, true, false, "there is no GPU"},
		"no tool":        {Sources{Driver: spec.DriverNVIDIA, Local: true, ProbeErr: ErrNoTool}, nil, false, false, "nvidia-smi not found"},
		"driver trouble": {Sources{Driver: spec.DriverNVIDIA, Local: true, ProbeErr: smiError}, nil, false, false, "Failed to initialize NVML"},
		"driver trouble with CDI": {Sources{Driver: spec.DriverCDI, Local: true, ProbeErr: smiError, CDI: []string{cdiKind + "0"}},
			nil, false, false, "Failed to initialize NVML"},
		"another machine":          {Sources{Driver: spec.DriverNVIDIA}, nil, false, false, ""},
		"another machine with CDI": {Sources{Driver: spec.DriverCDI, CDI: []string{cdiKind + "0"}}, []string{"0"}, true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inv, err := test.sources.Inventory()
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			var ids []string
			for _, d := range inv.Devices {
				if d.Problem != "" {
					d.ID += "!"
				}
				ids = append(ids, d.ID)
			}
			require.Equal(t, test.ids, ids)
			require.Equal(t, test.known, inv.Known)
			require.Equal(t, test.probed, inv.Probed)
		})
	}
	inv, err := Sources{Driver: spec.DriverCDI, Local: true, Probed: []Device{t4("0"), t4("1")}, CDI: []string{cdiKind + "GPU-0", cdiKind + "1"}}.Inventory()
	require.NoError(t, err)
	require.Equal(t, "nvidia.com/gpu=GPU-0", inv.EngineName("0"))
	require.Equal(t, "nvidia.com/gpu=1", inv.EngineName("1"))
	inv, err = Sources{Driver: spec.DriverCDI, Local: true, Probed: []Device{t4("0")}, CDI: []string{cdiKind + "0", cdiKind + "GPU-0"}}.Inventory()
	require.NoError(t, err)
	require.Equal(t, "nvidia.com/gpu=GPU-0", inv.EngineName("0"), "the name that lasts")
	inv, err = Sources{Driver: spec.DriverNVIDIA, Local: true, Probed: []Device{t4("0"), {ID: "1"}}}.Inventory()
	require.NoError(t, err)
	require.Equal(t, "GPU-0", inv.EngineName("0"))
	require.Equal(t, "1", inv.EngineName("1"))
	inv, err = Sources{Driver: spec.DriverNVIDIA}.Inventory()
	require.NoError(t, err)
	require.Equal(t, "3", inv.EngineName("3"))
}

func TestWant(t *testing.T) {
	inv := madeUpGPUs(4)
	inv.Devices[2].UUID = "GPU-abc"
	inv.Devices[3].Problem = "broken"
	unknown := Inventory{driver: spec.DriverNVIDIA}
	for name, test := range map[string]struct {
		want Want
		inv  Inventory
		ids  []string
		rule string
	}{
		"two of the healthy":    {Want{Count: 2}, inv, []string{"0", "1", "2"}, ""},
		"by index and UUID":     {Want{IDs: []string{"1", "gpu-ABC"}}, inv, []string{"1", "2"}, ""},
		"all":                   {Want{All: true}, madeUpGPUs(2), []string{"0", "1"}, ""},
		"all, one broken":       {Want{All: true}, inv, nil, "not all of them are fit: GPU 3: broken"},
		"more than there":       {Want{Count: 5}, inv, nil, "5 asked for, 4 there"},
		"more than healthy":     {Want{Count: 4}, inv, nil, "4 asked for, 4 there, but GPU 3: broken"},
		"not there":             {Want{IDs: []string{"7"}}, inv, nil, "GPU 7 does not exist; there are 0-3"},
		"broken":                {Want{IDs: []string{"3"}}, inv, nil, "GPU 3: broken"},
		"the same by two names": {Want{IDs: []string{"2", "GPU-abc"}}, inv, nil, "GPU 2 is named twice"},
		"a part":                {Want{IDs: []string{"0:1"}}, inv, nil, "parts of a GPU (MIG) are not lent"},
		"a part by UUID":        {Want{IDs: []string{"MIG-1"}}, unknown, nil, "parts of a GPU (MIG) are not lent"},
		"unknown: a number":     {Want{Count: 1}, unknown, nil, "the engine does not report which GPUs it has"},
		"unknown: an index":     {Want{IDs: []string{"3"}}, unknown, []string{"3"}, ""},
		"unknown: a UUID":       {Want{IDs: []string{"GPU-abc"}}, unknown, nil, "which GPU GPU-abc is cannot be found out here"},
		"unknown: all":          {Want{All: true}, unknown, []string{"all"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ids, err := test.want.candidates(test.inv)
			require.Equal(t, test.ids, ids)
			require.Equal(t, err, test.want.Check(test.inv))
			if test.rule == "" {
				require.NoError(t, err)
				return
			}
			var refused *WantError
			require.ErrorAs(t, err, &refused)
			require.Contains(t, refused.Rule, test.rule)
		})
	}
	require.Equal(t, "0-2, 5, 7-8", ranges([]string{"0", "1", "2", "5", "7", "8"}))
	require.Equal(t, "1 GPU", Want{Count: 1}.String())
	require.Equal(t, "GPUs 0, 2, shared", Want{IDs: []string{"0", "2"}, Share: true}.String())
}

// holding and waiting are tickets of others.
func holding(number int64, share bool, gpus ...string) Ticket {
	return Ticket{Number: number, State: stateHolding, GPUs: gpus, Share: share, Holder: Holder{RunID: "h"}}
}

func waiting(number int64, state string) Ticket {
	return Ticket{Number: number, State: state, Want: "8 GPUs", Holder: Holder{RunID: "w"}}
}

func TestDecide(t *testing.T) {
	used := madeUpGPUs(4)
	used.Devices[0].TotalBytes, used.Devices[0].UsedBytes = 80<<30, 40<<30
	left := holding(1, false, "0")
	for name, test := range map[string]struct {
		want     Want
		inv      Inventory
		view     view
		busy     map[string]string
		take     []string
		why      string
		aside    bool
		used     bool
		arriving bool
	}{
		"free": {want: Want{Count: 2}, take: []string{"0", "1"}},
		"around those that are held": {want: Want{Count: 2}, view: view{holding: []Ticket{holding(1, false, "0", "2")}}, take: []string{"1", "3"},
			why: "GPUs 0, 2 are held by run h"},
		"all or nothing": {want: Want{Count: 3}, view: view{holding: []Ticket{holding(1, false, "0", "2")}}, why: "GPUs 0, 2 are held by run h"},
		"named":          {want: Want{IDs: []string{"3", "1"}}, take: []string{"1", "3"}},
		"named and held": {want: Want{IDs: []string{"3", "1"}}, view: view{holding: []Ticket{holding(1, false, "1")}}, why: "GPU 1 is held by run h"},
		"all":            {want: Want{All: true}, take: []string{"0", "1", "2", "3"}},
		"all but one":    {want: Want{All: true}, view: view{holding: []Ticket{holding(1, false, "3")}}, why: "GPU 3 is held"},
		"somebody came before, who wants more": {want: Want{Count: 1}, view: view{ahead: []Ticket{waiting(1, stateWaiting)}},
			why: "1 request came before (first: run w"},
		"somebody just came before": {want: Want{Count: 1}, view: view{ahead: []Ticket{waiting(1, stateArriving), waiting(2, stateArriving)}},
			why: "2 requests came before", arriving: true},
		"somebody waits and another came": {want: Want{Count: 1}, view: view{ahead: []Ticket{waiting(1, stateWaiting), waiting(2, stateArriving)}},
			why: "2 requests came before"},
		"sharing with those who share": {want: Want{IDs: []string{"0"}, Share: true}, view: view{holding: []Ticket{holding(1, true, "0"), holding(2, true, "0")}},
			take: []string{"0"}},
		"sharing the least shared": {want: Want{Count: 1, Share: true}, inv: madeUpGPUs(2), take: []string{"1"},
			view: view{holding: []Ticket{holding(1, true, "0"), holding(2, true, "0"), holding(3, true, "1")}}},
		"sharing with one who does not": {want: Want{IDs: []string{"0"}, Share: true}, view: view{holding: []Ticket{holding(1, false, "0")}}, why: "GPU 0 is held"},
		"not sharing with those who do": {want: Want{IDs: []string{"0"}}, view: view{holding: []Ticket{holding(1, true, "0"), holding(2, true, "0")}},
			why: "h (process 0 of , since 0001-01-01T00:00:00Z) and run h"},
		"around memory in use":        {want: Want{Count: 3}, inv: used, take: []string{"1", "2", "3"}, why: "GPU 0: 40960 MiB", used: true},
		"memory in use":               {want: Want{Count: 4}, inv: used, why: "GPU 0: 40960 MiB", aside: true, used: true},
		"memory in use, and shared":   {want: Want{IDs: []string{"0"}, Share: true}, inv: used, take: []string{"0"}},
		"memory in use by its holder": {want: Want{IDs: []string{"0"}}, inv: used, view: view{holding: []Ticket{holding(1, false, "0")}}, why: "is held by"},
		"aside, and those before do not matter": {want: Want{IDs: []string{"0"}}, inv: used, view: view{ahead: []Ticket{waiting(1, stateWaiting)}},
			why: "GPU 0: 40960 MiB", aside: true, used: true},
		"a dead holder's program goes on": {want: Want{IDs: []string{"0"}}, view: view{left: []Ticket{left}}, busy: map[string]string{"h": "container x still runs"},
			why: "GPU 0: container x still runs", aside: true},
		"around a dead holder's program": {want: Want{Count: 1}, view: view{left: []Ticket{left}}, busy: map[string]string{"h": "container x still runs"},
			take: []string{"1"}, why: "container x"},
		"a dead holder, asked after": {want: Want{IDs: []string{"0"}}, view: view{left: []Ticket{left}}, take: []string{"0"}},
		"locked by a stranger":       {want: Want{Count: 1}, view: view{foreign: []string{"0"}}, take: []string{"1"}, why: "GPU 0: GPU 0 is locked by a process without a ticket"},
		"unknown, all":               {want: Want{All: true}, inv: Inventory{driver: spec.DriverCDI}, take: []string{"all"}},
		"unknown, all, one held":     {want: Want{All: true}, inv: Inventory{driver: spec.DriverCDI}, view: view{holding: []Ticket{holding(1, false, "7")}}, why: "is held"},
		"unknown, one, all held":     {want: Want{IDs: []string{"7"}}, inv: Inventory{driver: spec.DriverCDI}, view: view{holding: []Ticket{holding(1, false, "all")}}, why: "is held"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.inv.driver == "" {
				test.inv = madeUpGPUs(4)
			}
			d, err := decide(test.want, test.inv, test.view, test.busy)
			require.NoError(t, err)
			require.Equal(t, test.take, d.take)
			require.Contains(t, d.why, test.why)
			require.Equal(t, test.aside, d.aside, "aside")
			require.Equal(t, test.used, d.used, "used")
			require.Equal(t, test.arriving, d.arriving, "arriving")
		})
	}
	_, err := decide(Want{Count: 5}, madeUpGPUs(4), view{}, nil)
	require.Error(t, err)
}

// A crowd of holders is counted, and not told one by one.
func TestManyHolders(t *testing.T) {
	var v view
	for i := range 8 {
		v.holding = append(v.holding, Ticket{State: stateHolding, GPUs: []string{strconv.Itoa(i)}, Holder: Holder{RunID: "r" + strconv.Itoa(i)}})
	}
	d, err := decide(Want{All: true}, madeUpGPUs(8), v, nil)
	require.NoError(t, err)
	require.Contains(t, d.why, "GPU 1 is held by run r1")
	require.True(t, strings.HasSuffix(d.why, "; 6 others hold more"), d.why)
	require.False(t, d.sharing)
	for i := range v.holding {
		v.holding[i].GPUs, v.holding[i].Share = []string{"0"}, true
	}
	d, err = decide(Want{IDs: []string{"0"}}, madeUpGPUs(8), v, nil)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(d.why, " and 6 more"), d.why)
	require.True(t, d.sharing, "all of them share")
	v.holding = append(v.holding, holding(9, false, "0"))
	d, err = decide(Want{IDs: []string{"0"}, Share: true}, madeUpGPUs(8), v, nil)
	require.NoError(t, err)
	require.False(t, d.sharing, "this one shares already, and another does not")
}
