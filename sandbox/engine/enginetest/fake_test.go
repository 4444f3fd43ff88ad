package enginetest_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestMain runs many cases at once, because they mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// shared is an engine that several values share: none of them closes it.
type shared struct{ *enginetest.Fake }

func (shared) Close() error { return nil }

func TestConformance(t *testing.T) {
	fake := enginetest.NewScripted()
	enginetest.Run(t, enginetest.Options{
		New: func(*testing.T) engine.Engine { return shared{fake} }, Image: "debian", Scripted: true,
		Without: []string{"close: the values share one engine, which stays open"},
		Orphan: func(t *testing.T, class spec.Class, meta engine.Meta, job *spec.Job) engine.Ref {
			t.Helper()
			c, err := fake.Prepare(t.Context(), class, meta)
			require.NoError(t, err)
			if job != nil {
				require.NoError(t, c.Start(t.Context(), *job, engine.Streams{}))
			}
			fake.Die()
			return c.Ref()
		},
		Breakable: func(*testing.T) (engine.Engine, func(), func()) { return shared{fake}, fake.Break, fake.Restore },
	})
	require.Empty(t, fake.Misuse)
	require.Empty(t, fake.Left())
}
