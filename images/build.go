package images

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/pkg/jsonmessage"
)

// build turns the imported base into the image, without a network.
func (m *maker) build(ctx context.Context) error {
	m.steps.line("build", m.entry.Tag()+" through "+m.entry.Dockerfile)
	buildContext, err := tarOf(m.entry.Dockerfile, m.opts.Dockerfile)
	if err != nil {
		return m.failed(ctx, "build", err)
	}
	resp, err := m.eng.ImageBuild(ctx, buildContext, build.ImageBuildOptions{
		// The classic builder: every engine that we promise has it, and it
		// needs no session.
		Version:     build.BuilderV1,
		Tags:        []string{m.entry.Tag()},
		Dockerfile:  m.entry.Dockerfile,
		NetworkMode: "none",
		Remove:      true,
		ForceRemove: true,
		BuildArgs:   m.buildArgs(time.Now()),
	})
	if err != nil {
		return m.failed(ctx, "build", err)
	}
	defer resp.Body.Close()
	err = jsonmessage.DisplayJSONMessagesStream(resp.Body, m.steps, m.opts.TerminalFD, m.opts.Terminal, nil)
	if err != nil {
		return m.failed(ctx, "build", err)
	}
	return nil
}

// buildArgs are what Dockerfile.runner is told. Labels go through it as well: each
// one in the options of the build would be an instruction of its own.
func (m *maker) buildArgs(now time.Time) map[string]*string {
	recipe := m.entry.Recipe()
	return map[string]*string{
		"BASE_IMAGE": new(m.entry.baseTag()),
		"BASE_NAME":  new("scratch"),
		"NAME":       new(m.entry.Name),
		"RECIPE":     new(recipe),
		"VERSION":    new(recipe[:12]),
		"CREATED":    new(now.UTC().Format(time.RFC3339)),
	}
}

// tarOf returns a tar archive that holds one file.
func tarOf(name, text string) (io.Reader, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
		return nil, fmt.Errorf("build context: %w", err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		return nil, fmt.Errorf("build context: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("build context: %w", err)
	}
	return &buf, nil
}
