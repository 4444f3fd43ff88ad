package sandbox

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// BenchmarkRunAfter measures what one run costs beside the engine, when the state directory has
// the records of earlier runs.
func BenchmarkRunAfter(b *testing.B) {
	for _, earlier := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(earlier), func(b *testing.B) {
			r := newFakeRunner(b, enginetest.NewFake(nil))
			run := func() {
				req := command("true")
				req.ID = ""
				_, err := r.Run(b.Context(), req)
				require.NoError(b, err)
			}
			for range earlier {
				run()
			}
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
