package render

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 3*time.Minute + 50*time.Second: "3m", 47 * time.Hour: "47h", 49 * time.Hour: "2d",
	} {
		require.Equal(t, want, Age(d))
	}
}
