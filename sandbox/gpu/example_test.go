package gpu_test

import (
	"context"
	"fmt"
	"os"

	"github.com/evalbox/evalbox/sandbox/gpu"
)

func ExampleManager_Acquire() {
	dir, err := os.MkdirTemp("", "gpus")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	// gpu.Probe finds the GPUs of this machine; these are made up.
	inventory, err := gpu.Sources{Local: true, Probed: []gpu.Device{{ID: "0"}, {ID: "1"}}}.Inventory()
	if err != nil {
		fmt.Println(err)
		return
	}
	m := gpu.Open(dir)
	order := gpu.Order{Want: gpu.Want{Count: 2}, Holder: gpu.Holder{RunID: "r1"}, Inventory: inventory}
	lease, err := m.Acquire(ctx, order)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.IDs())

	list, err := m.List(ctx, inventory)
	fmt.Println(list.GPUs[0].State, list.GPUs[0].Holders[0].RunID, err)
	fmt.Println(lease.Release(ctx))
	// Output:
	// [0 1]
	// held r1 <nil>
	// <nil>
}
