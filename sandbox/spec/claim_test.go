package spec

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseClaim(t *testing.T) {
	for text, want := range map[string]Claim{
		"pvc://data":          {Name: "data"},
		"pvc://data/":         {Name: "data"},
		"pvc://data.v1/a/b c": {Name: "data.v1", Path: "a/b c"},
		"pvc://data/a/":       {Name: "data", Path: "a"},
	} {
		c, err := ParseClaim(text)
		require.NoError(t, err, text)
		require.Equal(t, want, *c)
		again, err := ParseClaim(c.Text())
		require.NoError(t, err, text)
		require.Equal(t, c, again)
	}
	for _, text := range []string{"pvc://", "pvc:///a", "pvc://Data", "pvc://data/../x", "pvc://data/a/../../b", "pvc://data//a", "pvc://data/./a", "pvc://data/a\x00b", "/data"} {
		_, err := ParseClaim(text)
		require.ErrorContains(t, err, "is not pvc://NAME/PATH", text)
	}
}

func TestLayoutWithAClaim(t *testing.T) {
	l, err := NewLayout(Request{Input: "pvc://data/train"})
	require.NoError(t, err)
	require.Equal(t, &Claim{Name: "data", Path: "train"}, l.Claim)
	require.Empty(t, l.Entries)
	require.Empty(t, l.Input())
	_, err = NewLayout(Request{Input: "pvc://data", Mounts: []Mount{{Source: "/data", Target: InputDir + "/more"}}})
	require.ErrorContains(t, err, "lies in the input, which is a volume of the cluster")
	_, err = NewLayout(Request{Input: "pvc://data", Observe: &Observe{Canaries: []string{InputDir + "/key"}}})
	require.ErrorContains(t, err, "lies in the input, which is a volume of the cluster")
	_, err = NewLayout(Request{Input: "pvc://data", Masks: []string{InputDir + "/labels.csv"}})
	require.ErrorContains(t, err, "lies in the input, which is a volume of the cluster")
}
