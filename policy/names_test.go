package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{
		"a", "7", "_", "run-1", "a.b", "A_b.C-9", "a..b", "a-", "a.", strings.Repeat("x", 64),
	} {
		require.NoError(t, CheckName("id", name), name)
	}
	for why, name := range map[string]string{
		"empty":                "",
		"too long":             strings.Repeat("x", 65),
		"this directory":       ".",
		"the directory above":  "..",
		"hidden":               ".a",
		"looks like a flag":    "-rf",
		"a path":               "a/b",
		"a path upwards":       "../a",
		"a Windows path":       `a\b`,
		"a blank":              "a b",
		"a newline":            "a\nb",
		"a newline at the end": "a\n",
		"NUL":                  "a\x00",
		"an escape":            "a\x1b[31m",
		"a colon":              "a:b",
		"a letter with dots":   "ä",
		"a Cyrillic letter":    "\u0430",
		"invalid UTF-8":        "a\xff",
		"a shell word":         "$(id)",
		"a quote":              "a'b",
	} {
		err := CheckName("id", name)
		var rule *FieldError
		require.ErrorAs(t, err, &rule, why)
		require.Equal(t, "id", rule.Field, why)
		require.NotContains(t, err.Error(), "\x1b", "what was given is quoted")
		require.NotContains(t, err.Error(), "\n", "what was given is quoted")
	}
}

func TestNameOf(t *testing.T) {
	for text, want := range map[string]string{
		"a": "a", "run-1": "run-1", strings.Repeat("x", 64): strings.Repeat("x", 64),
		"lr=0.1, depth=3":       "lr-0.1-depth-3-2a2dbecc",
		"my model":              "my-model-",
		"my  model":             "my-model-",
		"Größe":                 "Gr-e-",
		"-rf":                   "rf-",
		".hidden":               "hidden-",
		"模型":                    "",
		"":                      "e3b0c442",
		"...":                   "",
		"a\xff\n":               "a-",
		strings.Repeat("x", 65): strings.Repeat("x", 55) + "-",
	} {
		got := NameOf(text)
		require.NoError(t, CheckName("name", got), "%q", text)
		require.True(t, strings.HasPrefix(got, want), "%q: %s", text, got)
		require.Equal(t, got, NameOf(text))
	}
	require.NotEqual(t, NameOf("my model"), NameOf("my  model"))
	require.NotEqual(t, NameOf(strings.Repeat("x", 65)), NameOf(strings.Repeat("x", 66)))
}

func FuzzCheckName(f *testing.F) {
	f.Add("run-1")
	f.Add("../x")
	f.Fuzz(func(t *testing.T, name string) {
		require.NoError(t, CheckName("id", NameOf(name)))
		if CheckName("id", name) != nil {
			return
		}
		require.LessOrEqual(t, len(name), 64)
		require.NotContains(t, []string{"", ".", ".."}, name)
		require.False(t, strings.ContainsAny(name, "/\\\x00 \n\t:"), "%q", name)
		require.False(t, strings.HasPrefix(name, "-"), "%q", name)
	})
}

func TestCheckEnvAllows(t *testing.T) {
	for name, value := range map[string]string{
		"A":                       "",
		"_":                       "x",
		"lower":                   "1",
		"PATH":                    "/usr/bin",
		"LDFLAGS":                 "-O2",
		"OLD_LD_PRELOAD":          "x",
		"DOCKERFILE":              "x",
		"SEED":                    "line\nline",
		"UNICODE":                 "grün",
		"PYTHONUNBUFFERED":        "0",
		"PYTHONHASHSEED":          "7",
		"PYTHONUTF8":              "0",
		"PYTHONDONTWRITEBYTECODE": "",
		"PYTHONFAULTHANDLER":      "",
		"PYTHONWARNINGS":          "error",
		"PYTHONOPTIMIZE":          "1",
		"PYTHONIOENCODING":        "utf-8",
		"PY_THON":                 "x",
		// They change what the program loads, which is its own affair.
		"PYTHONPATH": "lib", "PYTHONHOME": "/opt", "PYTHONSTARTUP": "x", "PYTHON_ANYTHING_NEW": "x",
		"LD_PRELOAD": "/x.so", "LD_LIBRARY_PATH": "lib", "DYLD_INSERT_LIBRARIES": "x", "DOCKER_HOST": "x", "NODE_OPTIONS": "x", "HOME": "/work",
	} {
		require.Empty(t, CheckEnv(map[string]string{name: value}), name)
	}
	require.Empty(t, CheckEnv(nil))
}

func TestCheckEnvRefuses(t *testing.T) {
	for _, name := range []string{
		"", "1A", "A B", "A=B", "A-B", "A.B", "Ä", "A\n", "A\x00", strings.Repeat("A", 257),
		"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "nvidia_x", "CUDA_VISIBLE_DEVICES", "SANDBOX_DEADLINE",
	} {
		errs := CheckEnv(map[string]string{name: "x"})
		require.Len(t, errs, 1, "%q", name)
		var rule *FieldError
		require.ErrorAs(t, errs[0], &rule, "%q", name)
		require.Equal(t, "env", rule.Field)
		require.NotContains(t, errs[0].Error(), "\n", "the name is quoted")
	}
	require.Len(t, CheckEnv(map[string]string{"A": "x\x00y"}), 1)
}

// The kernel takes 128 KiB for NAME=value with the NUL at its end, not for the
// value alone.
func TestCheckEnvBoundsOneString(t *testing.T) {
	const most = 128<<10 - 1 - len("NAME=")
	require.Empty(t, CheckEnv(map[string]string{"NAME": strings.Repeat("x", most)}))
	require.Len(t, CheckEnv(map[string]string{"NAME": strings.Repeat("x", most+1)}), 1)
	require.Len(t, CheckEnv(map[string]string{"LONGERNAME": strings.Repeat("x", most)}), 1)
}

func TestCheckEnvBoundsTheCount(t *testing.T) {
	env := map[string]string{}
	for i := range 1000 {
		env[fmt.Sprintf("V%d", i)] = "x"
	}
	require.Empty(t, CheckEnv(env))
	env["ONE_MORE"] = "x"
	errs := CheckEnv(env)
	require.Len(t, errs, 1)
	require.Contains(t, errs[0].Error(), "1001 variables")
}

// The secrets of a caller are in values; no message may hold one.
func TestCheckEnvKeepsValuesToItself(t *testing.T) {
	for _, err := range CheckEnv(map[string]string{"NVIDIA_X": "hunter2", "A": "hunter2\x00", "1": "hunter2"}) {
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestCheckEnvReportsInOneOrder(t *testing.T) {
	env := map[string]string{}
	for i := range 50 {
		env[fmt.Sprintf("NVIDIA_%02d", i)] = "x"
	}
	var first []string
	for _, err := range CheckEnv(env) {
		first = append(first, err.Error())
	}
	require.Len(t, first, 50)
	require.True(t, slices.IsSorted(first))
}

func TestEnvIsBoundedInAll(t *testing.T) {
	env := map[string]string{}
	for i := range 10 {
		env[fmt.Sprintf("BIG_%d", i)] = strings.Repeat("x", 120<<10)
	}
	errs := CheckEnv(env)
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "in all")
}
