package runs

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSeekTail(t *testing.T) {
	long := strings.Repeat("x", tailChunk) + "\n"
	for name, test := range map[string]struct {
		text  string
		lines int
		want  string
	}{
		"none":            {"a\nb\n", 0, ""},
		"one":             {"a\nb\n", 1, "b\n"},
		"unfinished":      {"a\nb", 1, "b"},
		"all":             {"a\nb\n", 2, "a\nb\n"},
		"more":            {"a\nb\n", 9, "a\nb\n"},
		"empty":           {"", 3, ""},
		"empty lines":     {"a\n\n\n", 2, "\n\n"},
		"only an end":     {"\n", 1, "\n"},
		"over a chunk":    {"a\n" + long + "b\n", 2, long + "b\n"},
		"end of a chunk":  {"a\n" + long, 1, long},
		"many":            {strings.Repeat("line\n", 50_000), 30_000, strings.Repeat("line\n", 30_000)},
		"chunk by itself": {long, 1, long},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			require.NoError(t, os.WriteFile(path, []byte(test.text), 0o600))
			file, err := os.Open(path)
			require.NoError(t, err)
			defer file.Close()
			require.NoError(t, seekTail(file, test.lines))
			got, err := io.ReadAll(file)
			require.NoError(t, err)
			require.Equal(t, test.want, string(got))
		})
	}
}
