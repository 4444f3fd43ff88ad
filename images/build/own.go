package build

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/client"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"github.com/opencontainers/go-digest"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/pull"
	"github.com/evalbox/evalbox/images/store"
)

// An Own is the recipe of an image of the user's own. Exactly one of Dockerfile, Debian and
// Requirements is set.
type Own struct {
	// Name is the name of the image, see [images.IsName].
	Name string
	// Dockerfile is the text of a Dockerfile. The engine's builder carries it out, with a
	// network.
	Dockerfile string
	// Dir is the directory of the files that Dockerfile may copy. Its .dockerignore is
	// honored. All files together must not exceed [MaxBuildBytes].
	Dir string
	// Debian are packages that are added to the catalog's image of Debian packages. All files of these
	// packages and of their dependencies are unpacked, except documentation that the catalog excludes.
	Debian []string
	// Requirements is the text of a file of Python packages, in pip's format. pip installs
	// wheels only, and checks each hash that the file has.
	Requirements string
	// Base is the image on which the requirements are installed, as for [images.Resolve].
	// Empty is the catalog's image of Debian packages, with pip.
	Base string
}

// MaxBuildBytes bounds the files of a build directory together.
const MaxBuildBytes = 1 << 30

// pipPackage is Debian's package of pip.
const pipPackage = "python3-pip"

// Make builds an image of the user's own, also if the engine has one of this name, which is
// replaced. The image gets the name [images.OwnTag]. Errors, the end of ctx and concurrent
// builds are as for [Ensure]; a base that the builder pulled stays.
func Make(ctx context.Context, api client.APIClient, cat images.Catalog, own Own, opts Options) (r images.Resolved, err error) {
	if err := images.CheckName(own.Name); err != nil {
		return images.Resolved{}, fmt.Errorf("image: %w", err)
	}
	if _, taken := cat.Lookup(own.Name); taken {
		return images.Resolved{}, refused(own.Name, "is a name of the catalog "+cat.Source, "choose another name for the image of your own")
	}
	if opts.Root == nil {
		opts.Root = Mmdebstrap
	}
	m := &maker{eng: store.Docker{APIClient: api}, opts: opts, progress: pull.NewProgress(opts.Pull.Progress)}
	if err := m.planOwn(ctx, cat, own); err != nil {
		return images.Resolved{}, err
	}
	if err := checkIndex(own.Name, opts.PipIndex); err != nil {
		return images.Resolved{}, err
	}
	unlock, err := images.WaitLock(ctx, "image-"+own.Name, func() {
		m.progress.Line("lock", "another process is making this image, waiting for it")
	})
	if err != nil {
		return images.Resolved{}, m.failed(ctx, "lock", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := m.make(ctx); err != nil {
		return images.Resolved{}, err
	}
	return images.Resolve(ctx, m.eng, images.Catalog{}, own.Name)
}

// An ownBuild is what the build of an own image needs beside its entry. The methods of nil
// are those of an image of the catalog.
type ownBuild struct {
	// base is the ID of the base in the engine, and shown its name; empty for a bootstrap
	// and for a Dockerfile, which names its own.
	base, shown string
	// online says that the commands have a network.
	online bool
	// anyUser says that the Dockerfile sets its user.
	anyUser bool
	// dir is the directory of the builder's files, and files are further ones.
	dir   string
	files []contextFile
}

func (o *ownBuild) network() bool     { return o != nil && o.online }
func (o *ownBuild) choosesUser() bool { return o != nil && o.anyUser }

func (o *ownBuild) baseName() string {
	if o == nil {
		return ""
	}
	return o.shown
}

// planOwn turns the recipe into an entry, a Dockerfile and files.
func (m *maker) planOwn(ctx context.Context, cat images.Catalog, own Own) error {
	e := images.Entry{Own: true, Name: own.Name, Dockerfile: "Dockerfile.runner", Epoch: time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)}
	m.own = &ownBuild{}
	switch {
	case own.Dockerfile != "":
		e.Dockerfile = ownDockerfile
		m.own.online, m.own.anyUser, m.own.dir = true, true, own.Dir
	case len(own.Debian) > 0:
		if err := images.CheckPackages(own.Debian); err != nil {
			return refused(own.Name, err.Error(), "list the names of Debian packages, such as python3-yaml,git")
		}
		base, err := debianWith(cat, own.Name, own.Debian)
		if err != nil {
			return err
		}
		base.Bootstrap.Exclude = slices.DeleteFunc(slices.Clone(base.Bootstrap.Exclude), func(pattern string) bool { return !slices.Contains(documentation, pattern) })
		e.Base, e.Epoch = base, base.Bootstrap.Epoch
		m.opts.Dockerfile += labelOwn("debian " + base.Bootstrap.Suite + " with " + strings.Join(own.Debian, ", "))
	case own.Base == "":
		base, err := debianWith(cat, own.Name, []string{pipPackage})
		if err != nil {
			return err
		}
		e.Base, e.Epoch = base, base.Bootstrap.Epoch
		m.own.online, m.own.files = true, []contextFile{{pipFile, own.Requirements}}
		m.opts.Dockerfile += pipSteps + "USER 64646:64646\n" + labelOwn("pip on debian "+base.Bootstrap.Suite)
	default:
		r, found, err := images.Find(ctx, m.eng, cat, own.Base)
		if err != nil {
			return err
		}
		m.own.base, m.own.shown, m.own.online, m.own.anyUser = r.ID, r.Reference, true, true
		m.own.files = []contextFile{{pipFile, own.Requirements}}
		m.opts.Dockerfile = pipHead + pipSteps + "USER " + cmp.Or(userPattern().FindString(found.Config.User), "0:0") + "\n" + labelOwn("pip on "+r.Name)
	}
	sum := digest.FromString(strings.Join([]string{own.Dockerfile, m.opts.Dockerfile, m.own.base, own.Requirements}, "\x00"))
	e.DockerfileSHA256 = sum.Encoded()
	m.entry = e
	if own.Dockerfile != "" {
		m.opts.Dockerfile = labelStages(own.Dockerfile, fmt.Sprintf("LABEL %s=%q %s=%q %s=%q",
			images.LabelImage, e.Name, images.LabelRecipe, e.Recipe(), images.LabelOwn, "Dockerfile"))
	}
	return nil
}

// documentation are the patterns of a catalog that also hold for packages that a user asks for. Debian's
// slim images have the same. Any other file may be the reason for the package, such as a header.
var documentation = []string{"/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/lintian/*"}

// debianWith is the catalog's bootstrap, that of the default image if it has one, with more
// packages.
func debianWith(cat images.Catalog, name string, packages []string) (images.Base, error) {
	for _, candidate := range append([]string{cat.Default}, cat.Names()...) {
		e, ok := cat.Lookup(candidate)
		if !ok || e.Base.Bootstrap == nil {
			continue
		}
		b := *e.Base.Bootstrap
		b.Packages = slices.Clone(b.Packages)
		for _, p := range packages {
			if !slices.Contains(b.Packages, p) {
				b.Packages = append(b.Packages, p)
			}
		}
		// A package that was asked for is not replaced by an empty one.
		b.StandIns = slices.DeleteFunc(slices.Clone(b.StandIns), func(p string) bool { return slices.Contains(packages, p) })
		return images.Base{Bootstrap: &b}, nil
	}
	return images.Base{}, refused(name, "the catalog "+cat.Source+" has no image of Debian packages", "name a base with --base, or build from a Dockerfile")
}

// ownDockerfile is the name of the Dockerfile among the files of the builder. It cannot be
// that of a file of the directory, because the builder would take the last one.
const ownDockerfile = ".evalbox.Dockerfile"

// labelOwn is the instruction that records what an own image was built from.
func labelOwn(from string) string { return fmt.Sprintf("\nLABEL %s=%q\n", images.LabelOwn, from) }

// pipFile is the name of the requirements of an own image.
const pipFile = "evalbox-own-requirements.txt"

// pipHead begins the Dockerfile of requirements on a base that the engine has.
const pipHead = `ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG NAME=unknown BASE_NAME=unknown RECIPE=unknown VERSION=dev CREATED=unknown SOURCE_DATE_EPOCH=0 PIP_INDEX=
LABEL org.opencontainers.image.title="evalbox ${NAME}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE_NAME}" \
      org.evalbox.image="${NAME}" \
      org.evalbox.recipe="${RECIPE}"
`

// pipSteps install the requirements as root, in a container of the builder. Only wheels are
// taken, so that no code of a package runs. An index without TLS is accepted when the user
// names it.
const pipSteps = `
USER 0:0
COPY ` + pipFile + ` /usr/share/evalbox/requirements.txt
RUN set -eu; \
    host=${PIP_INDEX#*://}; host=${host%%/*}; \
    python3 -m pip --isolated install --only-binary :all: \
        --no-cache-dir --no-input --disable-pip-version-check --progress-bar off \
        --break-system-packages --root-user-action ignore \
        ${PIP_INDEX:+--index-url "$PIP_INDEX" --trusted-host "$host"} -r /usr/share/evalbox/requirements.txt
`

var userPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`) })

var (
	fromPattern   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^\s*FROM\s`) })
	escapePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("(?i)^#\\s*escape\\s*=\\s*`\\s*$") })
)

// labelStages adds an instruction to every stage of a Dockerfile, after its FROM. So each step
// of the build is known by its labels, and can be removed.
func labelStages(dockerfile, label string) string {
	var out strings.Builder
	escape, continued, from, directives := `\`, false, false, true
	for line := range strings.Lines(dockerfile) {
		text := strings.TrimRight(line, " \t\r\n")
		comment := strings.HasPrefix(strings.TrimSpace(text), "#")
		if directives = directives && comment; directives && escapePattern().MatchString(text) {
			escape = "`"
		}
		out.WriteString(text + "\n")
		if comment || continued && text == "" { // in a continued instruction, the builder skips both
			continue
		}
		if !continued {
			from = fromPattern().MatchString(text)
		}
		continued = strings.HasSuffix(text, escape)
		if from && !continued {
			out.WriteString(label + "\n")
			from = false
		}
	}
	return out.String()
}

// writeDir writes the files of a build directory, without those of its .dockerignore. A
// symbolic link is written as a link. Nothing but regular files, directories and links is
// written.
func writeDir(ctx context.Context, w *tar.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	ignored, err := readIgnore(root)
	if err != nil {
		return err
	}
	left := int64(MaxBuildBytes)
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || name == "." {
			return err
		}
		skip, err := ignored.MatchesOrParentMatches(filepath.FromSlash(name))
		switch {
		case err != nil:
			return err
		case skip && entry.IsDir() && !ignored.Exclusions():
			return fs.SkipDir
		case skip:
			return nil
		}
		return writeEntry(w, root, name, &left)
	})
}

// readIgnore reads the patterns of .dockerignore, if there is one.
func readIgnore(root *os.Root) (*patternmatcher.PatternMatcher, error) {
	var patterns []string
	file, err := root.Open(".dockerignore")
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		defer file.Close()
		if patterns, err = ignorefile.ReadAll(io.LimitReader(file, maxIgnore)); err != nil {
			return nil, err
		}
	}
	return patternmatcher.New(patterns)
}

// maxIgnore bounds a .dockerignore.
const maxIgnore = 1 << 20

// writeEntry writes one file; left are the bytes that all files may still have.
func writeEntry(w *tar.Writer, root *os.Root, name string, left *int64) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	link := ""
	switch info.Mode().Type() {
	case 0, fs.ModeDir:
	case fs.ModeSymlink:
		if link, err = root.Readlink(name); err != nil {
			return err
		}
	default:
		return nil // a socket or a device
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name, header.Uid, header.Gid, header.Uname, header.Gname = name, 0, 0, "", ""
	if info.IsDir() {
		header.Name += "/"
	}
	if *left -= header.Size; *left < 0 {
		return images.WithHint(fmt.Errorf("its files exceed %d MiB together", MaxBuildBytes>>20),
			"name a smaller one with --build-dir, or list what the build does not need in .dockerignore")
	}
	if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := root.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.CopyN(w, file, header.Size)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s became shorter while it was read", name)
	}
	return err
}
