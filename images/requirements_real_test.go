//go:build linux

package images_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	godigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox"
	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/build"
	"github.com/evalbox/evalbox/images/pull"
	"github.com/evalbox/evalbox/images/store"
)

// wheel is a Python package without dependencies, as pip wants it.
func wheel(t *testing.T, name, version string) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	info := name + "-" + version + ".dist-info/"
	for _, file := range []struct{ name, text string }{
		{name + "/__init__.py", fmt.Sprintf("__version__ = %q\n", version)},
		{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "RECORD", name + "/__init__.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
	} {
		f, err := w.CreateHeader(&zip.FileHeader{Name: file.name, Modified: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)})
		require.NoError(t, err)
		_, err = io.WriteString(f, file.text)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return buf.Bytes()
}

// wheelIndex serves wheels as a package index, and returns its URL.
func wheelIndex(t *testing.T, wheels map[string][]byte) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file := filepath.Base(r.URL.Path)
		if data, ok := wheels[file]; ok {
			_, _ = w.Write(data)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		for name := range wheels {
			if strings.HasPrefix(name, strings.ReplaceAll(file, "-", "_")+"-") {
				_, _ = fmt.Fprintf(w, "<a href=\"/files/%s\">%s</a>\n", name, name)
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.URL + "/simple"
}

// pythonBase makes a base of the Python of the image debian and of pip, without
// what the Dockerfile adds, and puts it into the registry.
func pythonBase(t *testing.T, eng *client.Client, reg *testRegistry, name string) (digest string) {
	t.Helper()
	return baseOf(t, eng, reg, name, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", func(*tar.Writer) {})
}

// baseOf is pythonBase with a PATH and further files.
func baseOf(t *testing.T, eng *client.Client, reg *testRegistry, name, search string, more func(*tar.Writer)) (digest string) {
	t.Helper()
	var root bytes.Buffer
	w := tar.NewWriter(&root)
	bareSystem(t, eng, w)
	addPip(t, w)
	more(w)
	require.NoError(t, w.Close())
	layer := root.Bytes()
	config := asJSON(t, ocispec.Image{
		Platform: ocispec.Platform{OS: "linux", Architecture: strings.TrimPrefix(here, "linux/")},
		Author:   t.Name() + t.TempDir(), // an image of this run alone
		Config:   ocispec.ImageConfig{Env: []string{"PATH=" + search}},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []godigest.Digest{godigest.FromBytes(layer)}},
	})
	repo, tag, _ := strings.Cut(name, ":")
	return reg.putManifest(t, repo, tag, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: "application/vnd.docker.distribution.manifest.v2+json",
		Config: reg.putBlob(t, repo, "application/vnd.docker.container.image.v1+json", config),
		Layers: []ocispec.Descriptor{reg.putBlob(t, repo, "application/vnd.docker.image.rootfs.diff.tar", layer)},
	})
}

// catalogOn is a catalog with one image, on a base of a registry.
func catalogOn(t *testing.T, name, base, requirements string) images.Catalog {
	t.Helper()
	cat, err := images.LoadCatalog([]byte(fmt.Sprintf(`
schema: evalbox/images/v1
default: %[1]s
images:
  %[1]s:
    description: made by a test
    base: {reference: %[2]q}
    epoch: 2026-01-01T00:00:00Z
    dockerfile: Dockerfile.runner
    dockerfile_sha256: %[3]s
    requirements: requirements.lock
    requirements_sha256: %[4]s
`, name, base, sum(evalbox.DockerfileRunner), sum(requirements))), "test.yaml")
	require.NoError(t, err)
	return cat
}

// TestEngineRequirements builds an image of a base in a registry and a package of an
// index, twice, and with an index that serves something else.
func TestEngineRequirements(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds two images: make test-all")
	}
	t.Parallel()
	eng, reg := engine(t), newRegistry(t, false)
	digest := pythonBase(t, eng, reg, "team/python:3")
	base := reg.host + "/team/python:3@" + digest
	tiny, other := wheel(t, "tinything", "1.0"), wheel(t, "otherthing", "2.0")
	index := wheelIndex(t, map[string][]byte{
		"tinything-1.0-py3-none-any.whl": tiny, "otherthing-2.0-py3-none-any.whl": other,
	})
	hash := func(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }
	pinned := "tinything==1.0 --hash=sha256:" + hash(tiny) + "\n"
	forged := pinned + "otherthing==2.0 --hash=sha256:" + hash(tiny) + "\n"
	var progress bytes.Buffer
	ensure := func(cat images.Catalog, requirements string, force bool) (images.Resolved, error) {
		progress.Reset()
		r, _, err := build.Ensure(t.Context(), eng, cat, "", build.Options{
			Dockerfile: evalbox.DockerfileRunner, Requirements: requirements, Force: force,
			Network: "host", PipIndex: index,
			Pull: pull.Options{Credentials: pull.DockerCredentials(t.TempDir()), Progress: &progress},
		})
		return r, err
	}
	byDigest := reg.host + "/team/python@" + digest
	removeAfter(t, eng, byDigest) // last, see below

	// What the index serves is not what is pinned.
	wrong := catalogOn(t, "test-forged", base, forged)
	_, err := ensure(wrong, forged, false)
	var knows interface{ Hint() string }
	require.ErrorAs(t, err, &knows, "%s", &progress)
	assert.Contains(t, knows.Hint(), "serves another file")
	assert.ErrorContains(t, err, hash(other))
	stays, err := eng.ImageInspect(t.Context(), byDigest)
	require.NoError(t, err, "the base stays")
	assert.Empty(t, standingOn(t, eng, stays.ID), "a failed build leaves nothing")

	// What is pinned.
	cat := catalogOn(t, "test-tiny", base, pinned)
	entry, _ := cat.Lookup("")
	removeAfter(t, eng, entry.Tag())
	made, err := ensure(cat, pinned, false)
	require.NoError(t, err, "%s", &progress)
	removeAfter(t, eng, made.ID) // its containers outlive its name
	out, code := run(t, eng, made.ID, "python", "-c", "import os, tinything as t; print(t.__version__, os.path.exists(t.__cached__), os.getuid())")
	assert.Zero(t, code, "%s", out)
	assert.Equal(t, "1.0 True 64646\n", out)
	found, err := eng.ImageInspect(t.Context(), made.ID)
	require.NoError(t, err)
	assert.Equal(t, base, found.Config.Labels["org.opencontainers.image.base.name"])
	assert.Equal(t, "2026-01-01T00:00:00Z", found.Config.Labels["org.opencontainers.image.created"])
	for _, env := range found.Config.Env {
		assert.NotContains(t, env, index)
	}

	// Once more: the same files, with the same contents and times.
	files := listFiles(t, eng, made.ID)
	// The recipe stamps what is newer than its beginning. Files of the engine are new in each
	// container, and would be in the image or not, depending on how fast the container starts.
	stamped := regexp.MustCompile(`(?s)find / .*-newermt "[^"]*"`).FindString(evalbox.DockerfileRunner)
	fresh, _ := run(t, eng, made.ID, "sh", "-c", "begin=$(($(date +%s) - 100)); "+stamped+" -print 2>/dev/null")
	assert.Contains(t, fresh, "/etc\n")
	assert.NotContains(t, fresh, "/.dockerenv\n")
	assert.NotContains(t, fresh, "/etc/mtab\n")
	const list = "import importlib.metadata as m; print(sorted((d.name, d.version) for d in m.distributions()))"
	packages, _ := run(t, eng, made.ID, "python", "-c", list)
	assert.Contains(t, packages, "('tinything', '1.0')")
	again, err := ensure(cat, pinned, true)
	require.NoError(t, err, "%s", &progress)
	againPackages, _ := run(t, eng, again.ID, "python", "-c", list)
	assert.Equal(t, packages, againPackages)
	assert.Equal(t, files, listFiles(t, eng, again.ID))
	inspected, err := eng.ImageInspect(t.Context(), again.ID)
	require.NoError(t, err)
	assert.Equal(t, found.RootFS.Layers, inspected.RootFS.Layers, "the layers are the same, bit for bit")
}

// TestEngineShippedImagesOnStandIns builds cuda and python as the shipped catalog describes them:
// its entries, Dockerfile.runner and the form of requirements.lock. The bases are stand-ins in
// a local registry, and the packages have the names and versions of requirements.lock, and
// nothing in them.
func TestEngineShippedImagesOnStandIns(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds whole images: make test-all")
	}
	t.Parallel()
	eng, reg := engine(t), newRegistry(t, false)
	requirements, wheels := standInRequirements(t)
	wheels["extrathing-1.5-py3-none-any.whl"] = wheel(t, "extrathing", "1.5") // in no lock
	index := wheelIndex(t, wheels)
	// The Python of cuda's base is conda's, in a directory of its own.
	conda := func(w *tar.Writer) {
		for _, dir := range []string{"opt/conda/", "opt/conda/bin/"} {
			writeTar(t, w, &tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil)
		}
		for _, name := range []string{"python", "python3"} {
			writeTar(t, w, &tar.Header{Typeflag: tar.TypeSymlink, Name: "opt/conda/bin/" + name, Linkname: "/usr/bin/python3", Mode: 0o777}, nil)
		}
		writeTar(t, w, &tar.Header{Name: "usr/lib/python3/dist-packages/torch.py", Mode: 0o644}, []byte("__version__ = '2.8.0'\n"))
	}
	bases := map[string]string{
		"cuda":   baseOf(t, eng, reg, "pytorch/pytorch:2.8.0", "/opt/conda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", conda),
		"python": pythonBase(t, eng, reg, "library/python:3.12"),
	}
	text := string(configs.Images())
	text = strings.ReplaceAll(text, "requirements_sha256: "+sum(evalbox.Requirements), "requirements_sha256: "+sum(requirements))
	for _, name := range []string{"cuda", "python"} {
		shippedEntry, _ := shipped(t).Lookup(name)
		repo := map[string]string{"cuda": "pytorch/pytorch:2.8.0", "python": "library/python:3.12"}[name]
		text = strings.ReplaceAll(text, shippedEntry.Base.Reference, reg.host+"/"+repo+"@"+bases[name])
		repo, _, _ = strings.Cut(repo, ":")
		removeAfter(t, eng, reg.host+"/"+repo+"@"+bases[name])
	}
	cat, err := images.LoadCatalog([]byte(text), "test.yaml")
	require.NoError(t, err)
	programs := map[string]string{
		"cuda":   "import sys, torch, importlib.metadata as m; print(sys.executable, torch.__version__, m.version('numpy'))",
		"python": "import sys, importlib.metadata as m; print(sys.executable, m.version('scikit-learn'), m.version('numpy'))",
	}
	want := map[string]string{"cuda": "/opt/conda/bin/python 2.8.0 2.2.6\n", "python": "1.7.2 2.2.6\n"}
	for _, name := range []string{"cuda", "python"} {
		entry, _ := cat.Lookup(name)
		removeAfter(t, eng, entry.Tag())
		var progress bytes.Buffer
		made, built, err := build.Ensure(t.Context(), eng, cat, name, build.Options{
			Dockerfile: evalbox.DockerfileRunner, Requirements: requirements, Network: "host", PipIndex: index,
			Pull: pull.Options{Credentials: pull.DockerCredentials(t.TempDir()), Progress: &progress},
		})
		require.NoError(t, err, "%s: %s", name, &progress)
		assert.True(t, built)
		removeAfter(t, eng, made.ID)
		out, code := run(t, eng, made.ID, "python", "-c", programs[name])
		assert.Zero(t, code, "%s: %s", name, out)
		assert.True(t, strings.HasSuffix(out, want[name]), "%s: %s", name, out)
	}

	// An own image with pip on one of them: no hashes, and the same user afterwards.
	own := build.Own{Name: "test-own-pip", Requirements: "extrathing>=1\n", Base: "python"}
	removeAfter(t, eng, images.OwnTag(own.Name))
	var progress bytes.Buffer
	options := build.Options{Dockerfile: evalbox.DockerfileRunner, Network: "host", PipIndex: index, Pull: pull.Options{Progress: &progress}}
	made, err := build.Make(t.Context(), eng, cat, own, options)
	require.NoError(t, err, "%s", &progress)
	out, code := run(t, eng, made.ID, "python", "-c", "import os, extrathing as e; print(e.__version__, os.getuid())")
	assert.Zero(t, code, "%s", out)
	assert.Equal(t, "1.5 64646\n", out)
	own.Requirements = "extrathing==9\n"
	_, err = build.Make(t.Context(), eng, cat, own, options)
	require.ErrorContains(t, err, "image test-own-pip: build: Could not find a version that satisfies the requirement extrathing==9")
	still, err := images.Resolve(t.Context(), store.Docker{APIClient: eng}, images.Catalog{}, own.Name)
	require.NoError(t, err)
	assert.Equal(t, made.ID, still.ID, "a failed build leaves the former image")
}

// standInRequirements is requirements.lock with the hashes of empty wheels, and the wheels.
func standInRequirements(t *testing.T) (text string, wheels map[string][]byte) {
	t.Helper()
	wheels = map[string][]byte{}
	for line := range strings.Lines(evalbox.Requirements) {
		pin := regexp.MustCompile(`^([a-z-]+)==(\S+)`).FindStringSubmatch(line)
		if pin == nil {
			continue
		}
		file := strings.ReplaceAll(pin[1], "-", "_")
		data := wheel(t, file, pin[2])
		wheels[file+"-"+pin[2]+"-py3-none-any.whl"] = data
		text += fmt.Sprintf("%s==%s \\\n    --hash=sha256:%x\n", pin[1], pin[2], sha256.Sum256(data))
	}
	require.Greater(t, len(wheels), 10)
	return text, wheels
}

// bareSystem copies what a Python needs out of the image debian.
func bareSystem(t *testing.T, eng *client.Client, w *tar.Writer) {
	t.Helper()
	debian, err := images.Resolve(t.Context(), store.Docker{APIClient: eng}, shipped(t), "debian")
	require.NoError(t, err)
	unneeded := regexp.MustCompile(`^(work|usr/local|usr/share|var|usr/lib/[^/]+/(perl.*|gconv|openblas-pthread))/.|^usr/lib/python3[^/]*/dist-packages/.`)
	exported(t, eng, debian.ID, func(header *tar.Header, body io.Reader) {
		if unneeded.MatchString(header.Name) {
			return
		}
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		if header.Name == "etc/passwd" || header.Name == "etc/group" {
			text = regexp.MustCompile(`(?m)^sandbox:.*\n`).ReplaceAll(text, nil)
		}
		writeTar(t, w, header, text)
	})
}

// addPip adds the pip of this machine's distribution.
func addPip(t *testing.T, w *tar.Writer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", `
		apt-get download -q python3-pip-whl || { apt-get update -q && apt-get download -q python3-pip-whl; }
		dpkg-deb -x python3-pip-whl_*.deb .`)
	cmd.Dir = t.TempDir()
	said, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", said)
	wheels, err := filepath.Glob(filepath.Join(cmd.Dir, "usr/share/python-wheels/pip-*.whl"))
	require.NoError(t, err)
	require.Len(t, wheels, 1)
	pip, err := zip.OpenReader(wheels[0])
	require.NoError(t, err)
	defer pip.Close()
	// A wheel lists no directories. Listed here, they have a time of their own and
	// not that of the import, which one of two builds may take for its own.
	released, listed := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), map[string]bool{".": true}
	for _, file := range pip.File {
		var parents []string
		for dir := path.Dir(file.Name); !listed[dir]; dir = path.Dir(dir) {
			listed[dir] = true
			parents = append(parents, dir)
		}
		for _, dir := range slices.Backward(parents) {
			writeTar(t, w, &tar.Header{
				Typeflag: tar.TypeDir, Name: "usr/lib/python3/dist-packages/" + dir + "/", Mode: 0o755, ModTime: released,
			}, nil)
		}
		body, err := file.Open()
		require.NoError(t, err)
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		writeTar(t, w, &tar.Header{
			Name: "usr/lib/python3/dist-packages/" + file.Name, Mode: 0o644, ModTime: released,
		}, text)
	}
}

// standingOn are the images right on another one, steps of builds too.
func standingOn(t *testing.T, eng *client.Client, base string) (ids []string) {
	t.Helper()
	all, err := eng.ImageList(t.Context(), image.ListOptions{All: true})
	require.NoError(t, err)
	for _, img := range all {
		if img.ParentID == base {
			ids = append(ids, img.ID)
		}
	}
	return ids
}

// listFiles lists everything in an image with mode, owner, time and contents. What
// the engine puts over it in a container, and the directories that this touches, are
// left out.
func listFiles(t *testing.T, eng *client.Client, imageID string) string {
	t.Helper()
	var lines []string
	exported(t, eng, imageID, func(header *tar.Header, body io.Reader) {
		switch name := strings.Trim(header.Name, "/"); name {
		case "", ".dockerenv", "etc", "etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab", "dev", "dev/console", "dev/pts", "dev/shm", "proc", "sys":
			return
		}
		sum := sha256.New()
		_, err := io.Copy(sum, body)
		require.NoError(t, err)
		lines = append(lines, fmt.Sprintf("%s %o %d:%d %d %s %s", header.Name, header.Mode, header.Uid, header.Gid,
			header.ModTime.Unix(), header.Linkname, hex.EncodeToString(sum.Sum(nil))))
	})
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// exported calls visit with everything in an image.
func exported(t *testing.T, eng *client.Client, imageID string, visit func(header *tar.Header, body io.Reader)) {
	t.Helper()
	c, err := eng.ContainerCreate(t.Context(), &container.Config{Image: imageID}, nil, nil, nil, "")
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, eng.ContainerRemove(context.WithoutCancel(t.Context()), c.ID, container.RemoveOptions{Force: true}))
	}()
	body, err := eng.ContainerExport(t.Context(), c.ID)
	require.NoError(t, err)
	defer body.Close()
	for r := tar.NewReader(body); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		visit(header, r)
	}
}
