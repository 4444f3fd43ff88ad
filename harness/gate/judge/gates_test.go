package judge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// TestGatesAreReadAgain: what is written for a replay is what a replay reads.
func TestGatesAreReadAgain(t *testing.T) {
	in := passing()
	output := evidence.HashedFile{FilePath: evidence.OutputsDir + "/01/a.bin", SHA256: hash, Role: evidence.RoleArtifact}
	in.Artifacts.Artifacts = append(in.Artifacts.Artifacts, output)
	in.Manifest.Gates = append(in.Manifest.Gates, evidence.Gate{Index: 2, Command: evidence.Command{Cmd: "make lint", ExpectExit: 3}})
	g := Gates(in)
	assert.Equal(t, evidence.Gates{
		IOBoundary: "repo/", Offline: true,
		Commands: []evidence.GateCommand{
			{Cmd: "pytest -q", Ending: "exited", Passed: 2, LogSHA256: hash},
			{Cmd: "make lint", ExpectExit: 3},
		},
		Image: "python", ImageID: "sha256:" + hash, Commit: "c0ffee", Workspace: hash, WishSHA256: sealedWish.SHA256, BehaviorHash: hash,
		Artifacts: []evidence.HashedFile{output},
	}, g)
	text, err := evidence.Canonical(g)
	require.NoError(t, err)
	again, err := ParseGates(text)
	require.NoError(t, err)
	assert.Equal(t, g, again)
}

func TestGatesOfNothing(t *testing.T) {
	text, err := json.Marshal(Gates(Input{}))
	require.NoError(t, err)
	_, err = ParseGates(text)
	assert.ErrorContains(t, err, "no gate, no pass")
}

func TestParseGates(t *testing.T) {
	const command = `{"cmd": "pytest -q", "expect_exit": 0}`
	with := func(key, value string) string {
		keys := map[string]string{"io_boundary": `"repo/"`, "offline": "true", "commands": "[" + command + "]"}
		keys[key] = value
		var parts []string
		for _, k := range []string{"io_boundary", "offline", "commands", "extra", "artifacts", "image"} {
			if v := keys[k]; v != "" {
				parts = append(parts, `"`+k+`": `+v)
			}
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	for name, text := range map[string]string{
		"the seed's":        with("", ""),
		"extra keys":        with("extra", `{"x": [1.5, null]}`),
		"boundary is here":  with("io_boundary", `"."`),
		"deeper":            with("io_boundary", `"a/b..c/"`),
		"no expected exit":  with("commands", `[{"cmd": "x"}]`),
		"not offline":       with("offline", "false"),
		"two":               with("commands", "["+command+","+command+"]"),
		"keys of a command": with("commands", `[{"cmd": "x", "why": "so"}]`),
	} {
		t.Run(name, func(t *testing.T) {
			g, err := ParseGates([]byte(text))
			require.NoError(t, err)
			assert.NotEmpty(t, g.Commands)
			assert.Zero(t, g.Commands[0].ExpectExit)
		})
	}
	for name, c := range map[string]struct{ text, want string }{
		"an array":               {"[]", "the document must be an object, is an array"},
		"nothing":                {"", "not one valid JSON document"},
		"null":                   {"null", "must be an object, is null"},
		"two documents":          {with("", "") + "{}", "not one valid JSON document"},
		"twice":                  {`{"offline": true, "offline": false}`, `the key "offline" twice`},
		"other letters":          {`{"Offline": true}`, `must be written "offline"`},
		"no offline":             {with("offline", ""), `no key "offline"`},
		"offline null":           {with("offline", "null"), "offline must be a boolean, is null"},
		"offline 1":              {with("offline", "1"), "offline must be a boolean, is a number"},
		"no boundary":            {with("io_boundary", ""), `no key "io_boundary"`},
		"empty boundary":         {with("io_boundary", `""`), "must name a folder"},
		"boundary leaves":        {with("io_boundary", `"../"`), "must not lead out"},
		"boundary leaves inside": {with("io_boundary", `"a/../../b"`), "must not lead out"},
		"boundary absolute":      {with("io_boundary", `"/etc"`), "must be relative"},
		"boundary on a drive":    {with("io_boundary", `"C:/x"`), "must be relative"},
		"boundary backslash":     {with("io_boundary", `"..\\x"`), "backslash"},
		"boundary number":        {with("io_boundary", `7`), "io_boundary must be a string"},
		"no commands":            {with("commands", ""), `no key "commands"`},
		"empty commands":         {with("commands", "[]"), "no gate, no pass"},
		"commands null":          {with("commands", "null"), "commands must be an array, is null"},
		"plain string":           {with("commands", `["pytest -q"]`), "commands[0] must be an object, is a string"},
		"no cmd":                 {with("commands", `[{"expect_exit": 0}]`), `commands[0] has no key "cmd"`},
		"empty cmd":              {with("commands", `[{"cmd": " "}]`), "commands[0].cmd must not be empty"},
		"cmd with NUL":           {with("commands", `[{"cmd": "a\u0000"}]`), "no NUL"},
		"cmd list":               {with("commands", `[{"cmd": ["a"]}]`), "commands[0].cmd must be a string"},
		"bool exit":              {with("commands", `[{"cmd": "x", "expect_exit": false}]`), "commands[0].expect_exit must be a number, is a boolean"},
		"null exit":              {with("commands", `[{"cmd": "x", "expect_exit": null}]`), "expect_exit must be a number, is null"},
		"float exit":             {with("commands", `[{"cmd": "x", "expect_exit": 0.0}]`), "must be a whole number"},
		"string exit":            {with("commands", `[{"cmd": "x", "expect_exit": "0"}]`), "must be a number, is a string"},
		"exit too large":         {with("commands", `[{"cmd": "x", "expect_exit": 256}]`), "must be 0 to 255"},
		"negative exit":          {with("commands", `[{"cmd": "x", "expect_exit": -9}]`), "must be 0 to 255"},
		"negative passed":        {with("commands", `[{"cmd": "x", "passed": -1}]`), "passed must not be negative"},
		"no hash":                {with("commands", `[{"cmd": "x", "log_sha256": "zz"}]`), "log_sha256 must be"},
		"image number":           {with("image", "1"), "image must be a string"},
		"artifact without hash":  {with("artifacts", `[{"file_path": "a", "sha256": "", "role": "artifact"}]`), "artifacts[0].sha256"},
		"too large":              {strings.Repeat(" ", MaxGatesText+1), "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseGates([]byte(c.text))
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, evidence.GatesFile)
		})
	}
	_, err := ParseGates([]byte(`{"io_boundary": "/x", "offline": true, "commands": [{"cmd": ""}]}`))
	require.ErrorContains(t, err, "must be relative")
	assert.ErrorContains(t, err, "must not be empty", "all problems at once")
}

func FuzzParseGates(f *testing.F) {
	f.Add(`{"io_boundary": "repo/", "offline": true, "commands": [{"cmd": "pytest -q", "expect_exit": 0}]}`)
	f.Add(`{"io_boundary": "..", "offline": null, "commands": ["x"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		g, err := ParseGates([]byte(text))
		if err != nil {
			return
		}
		require.NotEmpty(t, g.Commands)
		require.NotContains(t, strings.Split(g.IOBoundary, "/"), "..")
		// What was read can be written and read again.
		again, err := evidence.Canonical(g)
		require.NoError(t, err)
		same, err := ParseGates(again)
		require.NoError(t, err)
		require.Equal(t, g.Commands, same.Commands)
	})
}
