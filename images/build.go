package images

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/pkg/jsonmessage"
)

// build turns the base into the image. Only an entry with requirements has a
// network while it is being built.
func (m *maker) build(ctx context.Context, base string) error {
	if err := m.checkUser(ctx, base); err != nil {
		return err
	}
	m.steps.line("build", m.entry.Tag()+" through "+m.entry.Dockerfile)
	buildContext, err := m.buildContext()
	if err != nil {
		return m.failed(ctx, "build", err)
	}
	buildCtx, ended, err := m.stopWith(ctx)
	if err != nil {
		return m.failed(ctx, "build", err)
	}
	defer ended()
	resp, err := m.eng.ImageBuild(buildCtx, buildContext, build.ImageBuildOptions{
		// The classic builder: every engine that we promise has it, and it
		// needs no session.
		Version:     build.BuilderV1,
		Tags:        []string{m.entry.Tag()},
		Dockerfile:  m.entry.Dockerfile,
		NetworkMode: m.buildNetwork(),
		NoCache:     true, // its key knows neither the network nor the time
		Remove:      true,
		ForceRemove: true,
		BuildArgs:   m.buildArgs(base),
	})
	if err != nil {
		return m.failed(ctx, "build", err)
	}
	defer resp.Body.Close()
	tail := &logTail{progress: func(string) {}}
	out := plain{io.MultiWriter(m.steps, tail)}
	if err := jsonmessage.DisplayJSONMessagesStream(resp.Body, out, 0, false, nil); err != nil {
		return m.failed(ctx, "build", buildFailed(m.entry, err, tail.String()))
	}
	return nil
}

// checkUser refuses a base that runs as another user than root, who could not write
// what the Dockerfile writes.
func (m *maker) checkUser(ctx context.Context, base string) error {
	found, err := m.eng.ImageInspect(ctx, base)
	if err != nil {
		return m.failed(ctx, "build", err)
	}
	if found.Config == nil {
		return nil
	}
	switch user, _, _ := strings.Cut(found.Config.User, ":"); user {
	case "", "0", "root":
		return nil
	}
	return m.failed(ctx, "build", &hintedError{
		fmt.Errorf("the base %s runs as user %q, must be root", base, found.Config.User),
		"choose a base whose user is root: programs do not run as it all the same",
	})
}

// buildNetwork is the network of the build.
func (m *maker) buildNetwork() string {
	switch {
	case m.entry.Requirements == "":
		return "none"
	case m.opts.BuildNetwork == "":
		return "default"
	}
	return m.opts.BuildNetwork
}

// buildArgs are what Dockerfile.runner is told. Labels go through it as well: each
// one in the options of the build would be an instruction of its own. Nothing here
// depends on when or where the image is built, except the package index.
func (m *maker) buildArgs(base string) map[string]*string {
	recipe, epoch := m.entry.Recipe(), m.entry.epoch()
	baseName := m.entry.Base.Reference
	if baseName == "" {
		baseName = "scratch"
	}
	args := map[string]*string{
		"BASE_IMAGE":        new(base),
		"BASE_NAME":         new(baseName),
		"NAME":              new(m.entry.Name),
		"RECIPE":            new(recipe),
		"VERSION":           new(recipe[:12]),
		"CREATED":           new(epoch.UTC().Format(time.RFC3339)),
		"SOURCE_DATE_EPOCH": new(strconv.FormatInt(epoch.Unix(), 10)),
	}
	if m.entry.Requirements != "" && m.opts.PipIndex != "" {
		args["PIP_INDEX"] = new(m.opts.PipIndex)
	}
	return args
}
