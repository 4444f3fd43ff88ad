package build

import (
	"archive/tar"
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
	"github.com/evalbox/evalbox/images/store"
	"github.com/evalbox/evalbox/internal/owner"
)

// build turns the base into the image. Only the build of an entry with requirements has a
// network.
func (m *maker) build(ctx context.Context, base string) error {
	if err := m.checkUser(ctx, base); err != nil {
		return err
	}
	network := "none"
	if m.entry.Requirements != "" || m.own.network() {
		network = cmp.Or(m.opts.Network, "default")
	}
	m.progress.Line("build", m.entry.Tag()+" through "+shownFile(m.entry))
	buildCtx, ended, err := m.stopWith(ctx)
	if err != nil {
		return err
	}
	defer ended()
	log := &logTail{progress: func(string) {}}
	contextErr, err := store.Pipe(ctx, m.writeContext, func(buildContext io.Reader) error {
		return m.runBuilder(buildCtx, buildContext, m.builderOptions(base, network), log)
	})
	switch {
	case contextErr != nil:
		return fmt.Errorf("build directory: %w", contextErr)
	case err != nil && strings.Contains(err.Error(), "on network "):
		return images.WithHint(err, "the engine's default network does not work: choose another with --build-network, such as host, or none if the build needs no network")
	case err != nil:
		return buildFailed(m.entry, err, log)
	}
	return nil
}

func (m *maker) builderOptions(base, network string) build.ImageBuildOptions {
	return build.ImageBuildOptions{
		// Every supported engine has the classic builder, and it does not need a session.
		Version:     build.BuilderV1,
		Tags:        []string{m.entry.Tag()},
		Dockerfile:  m.entry.Dockerfile,
		NetworkMode: network,
		NoCache:     true, // its key knows neither the network nor the time
		Remove:      true,
		ForceRemove: true,
		BuildArgs:   m.buildArgs(base),
	}
}

// runBuilder sends the files to the builder, and shows what it prints.
func (m *maker) runBuilder(ctx context.Context, buildContext io.Reader, opts build.ImageBuildOptions, log *logTail) error {
	resp, err := m.eng.ImageBuild(ctx, buildContext, opts)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return store.StreamError(jsonmessage.DisplayJSONMessagesStream(resp.Body, plain{io.MultiWriter(m.progress, log)}, 0, false, nil))
}

// checkUser refuses a base whose user is not root, because that user could not write the
// files of the Dockerfile.
func (m *maker) checkUser(ctx context.Context, base string) error {
	if m.own.choosesUser() {
		return nil
	}
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
	if base == "" { // a Dockerfile of the user's own has no such arguments
		return nil
	}
	recipe, epoch := m.entry.Recipe(), m.entry.Epoch
	args := map[string]*string{
		"BASE_IMAGE":        new(base),
		"BASE_NAME":         new(cmp.Or(m.entry.Base.Reference, m.own.baseName(), "scratch")),
		"NAME":              new(m.entry.Name),
		"RECIPE":            new(recipe),
		"VERSION":           new(recipe[:12]),
		"CREATED":           new(epoch.UTC().Format(time.RFC3339)),
		"SOURCE_DATE_EPOCH": new(strconv.FormatInt(epoch.Unix(), 10)),
	}
	if (m.entry.Requirements != "" || m.own.network()) && m.opts.PipIndex != "" {
		args["PIP_INDEX"] = new(m.opts.PipIndex)
	}
	return args
}

// requirementsFile is the name of the requirements in Dockerfile.runner. The file is empty
// for an image without requirements.
const requirementsFile = "requirements.lock"

// writeContext writes the files for the builder: the Dockerfile and the requirements, with
// fixed owners, modes and times, and the directory of an own Dockerfile.
func (m *maker) writeContext(ctx context.Context, out io.Writer) error {
	w := tar.NewWriter(out)
	files := []contextFile{{m.entry.Dockerfile, m.opts.Dockerfile}}
	if m.own == nil || m.own.dir == "" {
		requirements := ""
		if m.entry.Requirements != "" {
			requirements = m.opts.Requirements
		}
		files = append(files, contextFile{requirementsFile, requirements})
	}
	if m.own != nil {
		files = append(files, m.own.files...)
		if m.own.dir != "" {
			if err := writeDir(ctx, w, m.own.dir); err != nil {
				return err
			}
			// The builder removes both files from the context before it copies from there.
			files = append(files, contextFile{".dockerignore", ".dockerignore\n" + ownDockerfile + "\n"})
		}
	}
	for _, file := range files {
		header := &tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.text)), ModTime: m.entry.Epoch.Truncate(time.Second)}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.WriteString(w, file.text); err != nil {
			return err
		}
	}
	return w.Close()
}

// shownFile is the name of the Dockerfile in messages.
func shownFile(entry images.Entry) string {
	if entry.Dockerfile == ownDockerfile {
		return "the Dockerfile"
	}
	return entry.Dockerfile
}

// A contextFile is one file for the builder.
type contextFile struct{ name, text string }

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

// buildFailed returns the error of a failed command of the Dockerfile: the line that names
// the reason, and then the last lines of the build. The builder's own error repeats the whole
// command without its output. The hint follows from the messages of pip.
func buildFailed(entry images.Entry, err error, log *logTail) error {
	var said *jsonmessage.JSONError
	if !errors.As(err, &said) || said.Code == 0 {
		return err
	}
	text := log.String()
	err = log.failed(fmt.Sprintf("a command of %s ended with code %d", shownFile(entry), said.Code))
	switch {
	case strings.Contains(text, "No module named pip"):
		return images.WithHint(err, "the base has no pip: leave --base out, or build one with: sandbox image build NAME --debian python3-pip")
	case strings.Contains(text, "DO NOT MATCH THE HASHES"):
		return images.WithHint(err, "the package index serves another file than the requirements pin: nothing of it was kept; "+
			"try another index with --pip-index, and never take a hash over unseen")
	case strings.Contains(text, "Failed to establish a new connection"), strings.Contains(text, "Temporary failure in name resolution"):
		return images.WithHint(err, "the build needs the package index: choose a network with --build-network (such as host), "+
			"or a mirror with --pip-index URL")
	case strings.Contains(text, "No matching distribution"):
		return images.WithHint(err, "the package index has no wheel of this version for the Python of the image: change the requirement, "+
			"choose another index with --pip-index URL, or, if none answers, a network with --build-network")
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
