package build

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalbox/evalbox/images/imagestest"
)

func TestMmdebstrapArgs(t *testing.T) {
	small, _ := imagestest.Catalog(t).Lookup("small")
	args := mmdebstrapArgs(*small.Base.Bootstrap, []string{"deb http://mirror.example/debian bookworm main"})
	for _, want := range []string{
		"--variant=minbase", "--include=python3,libstdc++6",
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=*.a",
	} {
		assert.Contains(t, args, want)
	}
	assert.Equal(t, []string{"bookworm", "-", "deb http://mirror.example/debian bookworm main"}, args[len(args)-3:])
	joined := strings.Join(args, "\n")
	assert.Contains(t, joined, "'Package: python3-pythran'")
	assert.NotContains(t, joined, "%!", "a format went wrong")
}

func TestSourcesFor(t *testing.T) {
	const targets = "http://m.example/debian/ bookworm main\n" +
		"http://m.example/debian/ bookworm main\n" +
		"http://m.example/debian/ bookworm contrib\n" +
		"http://m.example/debian/ bookworm-updates main\n" +
		"http://m.example/sec/ bookworm-security main\n" +
		"http://m.example/debian/ bookworm-backports main\n" +
		"http://m.example/debian/ trixie main\n" +
		"\nbroken line here indeed\n"
	assert.Equal(t, []string{
		"deb [signed-by=/k.gpg] http://m.example/debian/ bookworm main",
		"deb [signed-by=/k.gpg] http://m.example/debian/ bookworm-updates main",
		"deb [signed-by=/k.gpg] http://m.example/sec/ bookworm-security main",
	}, sourcesFor("bookworm", targets, "/k.gpg"))
	assert.Equal(t, []string{"deb http://m.example/debian/ trixie main"}, sourcesFor("trixie", targets, ""))
	assert.Empty(t, sourcesFor("noble", targets, ""), "another distribution: mmdebstrap chooses")
}

func TestLogTailIsBoundedAndReportsSteps(t *testing.T) {
	var seen []string
	log := &logTail{progress: func(line string) { seen = append(seen, line) }}
	for range 1000 {
		_, _ = log.Write([]byte(strings.Repeat("x", 100)))
	}
	_, _ = log.Write([]byte("\nI: running apt-get "))
	_, _ = log.Write([]byte("update...\nI: done\nE: broken"))
	assert.Equal(t, []string{"running apt-get update..."}, seen)
	assert.Contains(t, log.String(), "\n  E: broken")
	for range 100 {
		_, _ = log.Write([]byte("line\n"))
	}
	assert.LessOrEqual(t, len(log.String()), tailLines*(tailLineBytes+3))
	assert.Equal(t, tailLines, strings.Count(log.String(), "line"))
}
