package build

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/pkg/jsonmessage"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/pull"
	"github.com/evalbox/evalbox/internal/owner"
)

// build turns the base into the image. Only the build of an entry with requirements has a
// network.
func (m *maker) build(ctx context.Context, base string) error {
	if err := m.checkUser(ctx, base); err != nil {
		return err
	}
	network := "none"
	if m.entry.Requirements != "" {
		network = cmp.Or(m.opts.Network, "default")
	}
	m.progress.Line("build", m.entry.Tag()+" through "+m.entry.Dockerfile)
	buildContext, err := m.buildContext()
	if err != nil {
		return fmt.Errorf("build context: %w", err)
	}
	buildCtx, ended, err := m.stopWith(ctx)
	if err != nil {
		return err
	}
	defer ended()
	resp, err := m.eng.ImageBuild(buildCtx, buildContext, build.ImageBuildOptions{
		// Every supported engine has the classic builder, and it does not need a session.
		Version:     build.BuilderV1,
		Tags:        []string{m.entry.Tag()},
		Dockerfile:  m.entry.Dockerfile,
		NetworkMode: network,
		NoCache:     true, // its key knows neither the network nor the time
		Remove:      true,
		ForceRemove: true,
		BuildArgs:   m.buildArgs(base),
	})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	tail := &logTail{progress: func(string) {}}
	out := plain{io.MultiWriter(m.progress, tail)}
	if err := jsonmessage.DisplayJSONMessagesStream(resp.Body, out, 0, false, nil); err != nil {
		return buildFailed(m.entry, err, tail.String())
	}
	return nil
}

// checkUser refuses a base whose user is not root, because that user could not write the
// files of the Dockerfile.
func (m *maker) checkUser(ctx context.Context, base string) error {
	found, err := m.eng.Image(ctx, base)
	if err != nil {
		return err
	}
	switch user, _, _ := strings.Cut(found.Config.User, ":"); user {
	case "", "0", "root":
		return nil
	}
	return images.WithHint(fmt.Errorf("the base %s runs as user %q, must be root", base, found.Config.User),
		"choose a base whose user is root: programs do not run as it all the same")
}

// buildArgs are the arguments of Dockerfile.runner. Labels go through it as well: each one
// in the options of the build would be an instruction of its own. Nothing here depends on
// when or where the image is built, except the package index.
func (m *maker) buildArgs(base string) map[string]*string {
	recipe, epoch := m.entry.Recipe(), m.entry.Epoch
	args := map[string]*string{
		"BASE_IMAGE":        new(base),
		"BASE_NAME":         new(cmp.Or(m.entry.Base.Reference, "scratch")),
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

// requirementsFile is the name of the requirements in Dockerfile.runner. The file is empty
// for an image without requirements.
const requirementsFile = "requirements.lock"

// buildContext returns the files for the builder: the Dockerfile and the requirements, with
// fixed owners, modes and times.
func (m *maker) buildContext() (io.Reader, error) {
	requirements := ""
	if m.entry.Requirements != "" {
		requirements = m.opts.Requirements
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, file := range []struct{ name, text string }{
		{m.entry.Dockerfile, m.opts.Dockerfile}, {requirementsFile, requirements},
	} {
		header := &tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.text)), ModTime: m.entry.Epoch.Truncate(time.Second)}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, file.text); err != nil {
			return nil, err
		}
	}
	return &buf, w.Close()
}

// The interval and the limit of the search for the command of a build that must end.
const (
	stopRetry = 200 * time.Millisecond
	stopTime  = time.Minute
)

// stopWith returns a context for a build that must end with ctx, and a function to call when
// the build has ended. If its caller disconnects, an engine continues with the present step
// and keeps the result. So the command of that step is killed instead, and the answer is
// read to its end. The context ends only if the build does not end then.
func (m *maker) stopWith(ctx context.Context) (build context.Context, ended func(), err error) {
	before, err := m.commands(ctx)
	if err != nil {
		return nil, nil, err
	}
	build, cancel := context.WithCancel(context.WithoutCancel(ctx))
	over := context.AfterFunc(ctx, func() {
		limit := time.After(stopTime)
		again := time.NewTicker(stopRetry)
		defer again.Stop()
		for {
			now, _ := m.commands(build) // an error is tried again
			for _, id := range now {
				if !slices.Contains(before, id) {
					_ = m.eng.ContainerKill(build, id, "KILL")
				}
			}
			select {
			case <-again.C:
			case <-limit:
				cancel()
			case <-build.Done():
				return
			}
		}
	})
	return build, func() { over(); cancel() }, nil
}

// commands returns the IDs of the running containers that may belong to a build of this
// recipe: they have its label, which derived images inherit, but not the label of a run, and
// their image has no name.
func (m *maker) commands(ctx context.Context) (ids []string, err error) {
	all, err := m.eng.ContainerList(ctx, container.ListOptions{
		Filters: filters.NewArgs(filters.Arg("label", images.LabelRecipe+"="+m.entry.Recipe())),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the containers: %w", err)
	}
	for _, c := range all {
		step, err := m.eng.Image(ctx, c.ImageID)
		if err == nil && len(step.Tags) == 0 && c.Labels[owner.LabelManaged] == "" {
			ids = append(ids, c.ID)
		}
	}
	return ids, nil
}

// buildFailed returns the error of a failed command of the Dockerfile, with the last lines of
// the build. The builder's own error repeats the whole command without its output. The hint
// follows from the messages of pip.
func buildFailed(entry images.Entry, err error, log string) error {
	var said *jsonmessage.JSONError
	if !errors.As(err, &said) || said.Code == 0 {
		return err
	}
	err = fmt.Errorf("a command of %s ended with code %d\n%s", entry.Dockerfile, said.Code, log)
	switch {
	case entry.Requirements == "":
	case strings.Contains(log, "DO NOT MATCH THE HASHES"):
		return images.WithHint(err, "the package index serves another file than "+entry.Requirements+" pins: nothing of it was kept; "+
			"try another index with --pip-index, and never take a hash over unseen")
	case strings.Contains(log, "No matching distribution"), strings.Contains(log, "Failed to establish a new connection"):
		return images.WithHint(err, "the build needs the package index: choose a network with --build-network (such as host), "+
			"or a mirror with --pip-index URL")
	}
	return err
}

// plain passes text on without control characters, because the output of a build contains
// texts of packages and of an index.
type plain struct{ out io.Writer }

func (p plain) Write(data []byte) (int, error) {
	_, err := io.WriteString(p.out, pull.Visible(string(data)))
	return len(data), err
}
