package machine

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDescribe: each way to build the command has a version.
func TestDescribe(t *testing.T) {
	vcs := []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"},
		{Key: "vcs.time", Value: "2026-01-02T03:04:05+01:00"},
		{Key: "vcs.modified", Value: "true"},
	}
	released := describe("1.2.3", &debug.BuildInfo{Main: debug.Module{Version: "v9.9.9"}, Settings: vcs})
	assert.Equal(t, "1.2.3", released.Version)
	assert.Equal(t, "0123456789abcdef", released.Revision)
	assert.Equal(t, "2026-01-02T02:04:05Z", released.Date)
	assert.True(t, released.Modified)
	assert.Contains(t, released.Schemas, "evalbox/result/v1")

	installed := describe("dev", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}})
	assert.Equal(t, "1.2.3", installed.Version)
	assert.Empty(t, installed.Revision)
	assert.Equal(t, "dev", describe("dev", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}).Version)
	assert.Equal(t, "dev", describe("dev", &debug.BuildInfo{}).Version)
}
