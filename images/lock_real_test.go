package images_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/archive"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/images/packages"
	"github.com/evalbox/evalbox/images/prune"
	"github.com/evalbox/evalbox/images/store"
)

// tinyImage imports an image of a few files, with nothing to run in it.
func tinyImage(t *testing.T, eng *client.Client, tag, version string, changes ...string) string {
	t.Helper()
	var root bytes.Buffer
	w := tar.NewWriter(&root)
	for name, body := range map[string]string{
		"usr/lib/os-release":  "ID=debian\nVERSION_ID=12\n",
		"var/lib/dpkg/status": "Package: tiny\nStatus: install ok installed\nArchitecture: all\nVersion: " + version + "\n",
		"usr/lib/python3/dist-packages/Tiny_Lib-1.0.dist-info/METADATA": "Name: Tiny_Lib\nVersion: 1.0\n",
	} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(body))}))
		_, err := io.WriteString(w, body)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	body, err := eng.ImageImport(t.Context(), image.ImportSource{Source: &root, SourceName: "-"}, tag, image.ImportOptions{Changes: changes})
	require.NoError(t, err)
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	require.NoError(t, err)
	t.Cleanup(func() { forget(t, eng, tag) })
	found, err := eng.ImageInspect(t.Context(), tag)
	require.NoError(t, err)
	return found.ID
}

// forget removes an image of a test, if it is there.
func forget(t *testing.T, eng *client.Client, ref string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := eng.ImageRemove(ctx, ref, image.RemoveOptions{Force: true}); !errdefs.IsNotFound(err) {
		assert.NoError(t, err)
	}
}

// readersOf counts the containers through which an image is read.
func readersOf(t *testing.T, eng *client.Client, id string) int {
	t.Helper()
	all, err := eng.ContainerList(t.Context(), container.ListOptions{All: true,
		Filters: filters.NewArgs(filters.Arg("label", store.LabelReader+"="+id))})
	require.NoError(t, err)
	return len(all)
}

// A name of a test, which no other process uses.
func testTag(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("evalbox-test/%s-%d:1", strings.ToLower(t.Name()), os.Getpid())
}

func TestEngineLockRealImage(t *testing.T) {
	eng, tag := engine(t), testTag(t)
	id := tinyImage(t, eng, tag, "1", `CMD ["/nothing/to/run"]`, "VOLUME /data")
	path := filepath.Join(t.TempDir(), "images.lock")

	change, err := lock.Put(t.Context(), store.Docker{APIClient: eng}, images.Catalog{}, path, tag)
	require.NoError(t, err)
	assert.Equal(t, "deb tiny 1 all\npython tiny-lib 1.0\n", change.After.Packages.Text())
	assert.Equal(t, "debian 12", change.After.System)
	assert.Equal(t, id, change.After.ID)
	assert.NotEmpty(t, change.After.Builder.Engine)
	assert.Zero(t, readersOf(t, eng, id), "no container is left")
	held, err := lock.Read(path)
	require.NoError(t, err)

	r, err := images.Resolve(t.Context(), store.Docker{APIClient: eng}, images.Catalog{}, tag)
	require.NoError(t, err)
	require.NoError(t, held.Check(r))
	r, err = images.Resolve(t.Context(), store.Docker{APIClient: eng}, images.Catalog{}, id)
	require.NoError(t, err)
	require.NoError(t, held.Check(r), "by its ID, too")
	v, err := lock.Verify(t.Context(), store.Docker{APIClient: eng}, images.Catalog{}, held, tag)
	require.NoError(t, err)
	assert.True(t, v.Same)

	// The name moves.
	other := tinyImage(t, eng, tag, "2", `CMD ["/nothing/to/run"]`, "VOLUME /data")
	t.Cleanup(func() { forget(t, eng, id) })
	v, err = lock.Verify(t.Context(), store.Docker{APIClient: eng}, images.Catalog{}, held, tag)
	require.NoError(t, err)
	assert.False(t, v.Same)
	assert.Equal(t, []string{"~ deb tiny 1 all -> 2"}, v.Diff.Lines())
	assert.Equal(t, other, v.ID)
	r, err = images.Resolve(t.Context(), store.Docker{APIClient: eng}, images.Catalog{}, tag)
	require.NoError(t, err)
	require.ErrorIs(t, held.Check(r), lock.ErrUnlocked)
}

func TestEngineExportImport(t *testing.T) {
	eng, tag := engine(t), testTag(t)
	id := tinyImage(t, eng, tag, "1")
	dir := t.TempDir()
	path := filepath.Join(dir, "images.lock")
	_, err := lock.Put(t.Context(), store.Docker{APIClient: eng}, images.Catalog{}, path, tag)
	require.NoError(t, err)
	held, err := lock.Read(path)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, archive.Export(t.Context(), eng, images.Catalog{}, held, tag, &file))

	// Where neither image nor lock is.
	forget(t, eng, tag)
	elsewhere := filepath.Join(dir, "other.lock")
	change, err := archive.Import(t.Context(), eng, images.Catalog{}, elsewhere, bytes.NewReader(file.Bytes()), "a.tar")
	require.NoError(t, err)
	// An engine that keeps manifests gives it another ID, because another
	// manifest was made of the archive.
	want, _ := held.Lookup(tag)
	want.ID = change.After.ID
	assert.Equal(t, want, change.After)
	imported, err := eng.ImageInspect(t.Context(), tag)
	require.NoError(t, err)
	assert.Equal(t, change.After.ID, imported.ID)
	r, err := images.Resolve(t.Context(), store.Docker{APIClient: eng}, images.Catalog{}, tag)
	require.NoError(t, err)
	require.NoError(t, held.Check(r), "it is the locked one, whatever its ID")

	// An archive that was cut off leaves nothing.
	forget(t, eng, tag)
	_, err = archive.Import(t.Context(), eng, images.Catalog{}, elsewhere, bytes.NewReader(file.Bytes()[:file.Len()/1024*512+100]), "a.tar")
	require.ErrorContains(t, err, "ends in the middle")
	// Nor does one whose image is not what its entry says.
	lie := bytes.Replace(file.Bytes(), []byte("deb tiny 1 all"), []byte("deb tiny 2 all"), 1)
	lie = bytes.Replace(lie, []byte(change.After.Packages.SHA256()), []byte(lieSum(t, change.After.Packages)), 1)
	_, err = archive.Import(t.Context(), eng, images.Catalog{}, filepath.Join(dir, "third.lock"), bytes.NewReader(lie), "a.tar")
	require.ErrorContains(t, err, "~ deb tiny 2 all -> 1")
	for _, gone := range []string{id, change.After.ID} {
		_, err = eng.ImageInspect(t.Context(), gone)
		assert.True(t, errdefs.IsNotFound(err), "what is refused is removed: %v", err)
	}

	// docker load takes the archive too, with its extra member and its name.
	resp, err := eng.ImageLoad(t.Context(), bytes.NewReader(file.Bytes()))
	require.NoError(t, err)
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, string(said), "Loaded image: "+tag)
	found, err := eng.ImageInspect(t.Context(), tag)
	require.NoError(t, err)
	assert.Equal(t, id, found.ID, "docker load finds the very image")
}

// An archive whose members an engine would follow to another manifest, or whose
// layer is not the one it says, changes nothing in the engine.
func TestEngineImportDoctored(t *testing.T) {
	eng, tag := engine(t), testTag(t)
	tinyImage(t, eng, tag, "1")
	path := filepath.Join(t.TempDir(), "images.lock")
	_, err := lock.Put(t.Context(), store.Docker{APIClient: eng}, images.Catalog{}, path, tag)
	require.NoError(t, err)
	held, err := lock.Read(path)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, archive.Export(t.Context(), eng, images.Catalog{}, held, tag, &file))
	made, err := eng.ImageInspect(t.Context(), tag)
	require.NoError(t, err)
	layer, otherLayer := made.RootFS.Layers[0], "sha256:"+strings.Repeat("0", 64)
	require.Len(t, withLayer(t, eng, layer), 1)
	forget(t, eng, tag)
	victim := tag + "-victim"
	id := tinyImage(t, eng, victim, "2")

	for name, c := range map[string]struct {
		doctor func(w *tar.Writer, header *tar.Header, body []byte)
		want   string
	}{
		"a manifest behind a link": {func(w *tar.Writer, header *tar.Header, body []byte) {
			writeTar(t, w, header, body)
			if header.Name != "manifest.json" {
				return
			}
			writeTar(t, w, &tar.Header{Name: "zz", Typeflag: tar.TypeSymlink, Linkname: "."}, nil)
			body = bytes.Replace(body, []byte(strconv.Quote(tag)), []byte(strconv.Quote(victim)), 1)
			writeTar(t, w, &tar.Header{Name: "zz/manifest.json", Mode: 0o644}, body)
		}, "does not belong to a saved image"},
		"a layer that is another": {func(w *tar.Writer, header *tar.Header, body []byte) {
			diff := regexp.MustCompile(`"diff_ids":\["sha256:[0-9a-f]{64}`)
			writeTar(t, w, header, diff.ReplaceAll(body, []byte(`"diff_ids":["`+otherLayer)))
		}, "the engine does not take it|its image has the content"},
	} {
		t.Run(name, func(t *testing.T) {
			var doctored bytes.Buffer
			w := tar.NewWriter(&doctored)
			for r := tar.NewReader(bytes.NewReader(file.Bytes())); ; {
				header, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				body, err := io.ReadAll(r)
				require.NoError(t, err)
				if header.Name == "evalbox.lock.yaml" {
					writeTar(t, w, header, body)
				} else {
					c.doctor(w, header, body)
				}
			}
			require.NoError(t, w.Close())
			elsewhere := filepath.Join(t.TempDir(), "images.lock")
			_, err := archive.Import(t.Context(), eng, images.Catalog{}, elsewhere, &doctored, "a.tar")
			require.Error(t, err)
			assert.Regexp(t, c.want, err.Error())
			found, err := eng.ImageInspect(t.Context(), victim)
			require.NoError(t, err)
			assert.Equal(t, id, found.ID, "the name of another image stays where it was")
			assert.Empty(t, withLayer(t, eng, layer))
			assert.Empty(t, withLayer(t, eng, otherLayer))
			assert.NoFileExists(t, elsewhere)
		})
	}
}

func writeTar(t *testing.T, w *tar.Writer, header *tar.Header, body []byte) {
	t.Helper()
	header.Size = int64(len(body))
	require.NoError(t, w.WriteHeader(header))
	_, err := w.Write(body)
	require.NoError(t, err)
}

// withLayer are the images that have a layer, with their names.
func withLayer(t *testing.T, eng *client.Client, layer string) map[string][]string {
	t.Helper()
	all, err := eng.ImageList(t.Context(), image.ListOptions{All: true})
	require.NoError(t, err)
	names := map[string][]string{}
	for _, img := range all {
		found, err := eng.ImageInspect(t.Context(), img.ID)
		if err == nil && slices.Contains(found.RootFS.Layers, layer) {
			names[img.ID] = img.RepoTags
		}
	}
	return names
}

// lieSum is the hash of a list with another version of its first package.
func lieSum(t *testing.T, list packages.List) string {
	t.Helper()
	list = slices.Clone(list)
	list[0].Version = "2"
	return list.SHA256()
}

// onlyMine keeps a test away from the images of others.
type onlyMine struct {
	*client.Client
	prefix string
}

func (e onlyMine) ImageList(ctx context.Context, opts image.ListOptions) ([]image.Summary, error) {
	all, err := e.Client.ImageList(ctx, opts)
	return slices.DeleteFunc(all, func(img image.Summary) bool {
		return !slices.ContainsFunc(img.RepoTags, func(tag string) bool { return strings.HasPrefix(tag, e.prefix) })
	}), err
}

func TestEnginePrune(t *testing.T) {
	eng := engine(t)
	prefix := fmt.Sprintf("evalbox/test-prune-%d", os.Getpid())
	label := "LABEL " + images.LabelImage + "=test"
	locked := tinyImage(t, eng, prefix+":locked", "1", label)
	used := tinyImage(t, eng, prefix+":used", "2", label)
	free := tinyImage(t, eng, prefix+":free", "3", label)
	unlabelled := tinyImage(t, eng, prefix+":unlabelled", "4")
	path := filepath.Join(t.TempDir(), "images.lock")
	_, err := lock.Put(t.Context(), store.Docker{APIClient: eng}, images.Catalog{}, path, prefix+":locked")
	require.NoError(t, err)
	held, err := lock.Read(path)
	require.NoError(t, err)
	c, err := eng.ContainerCreate(t.Context(), &container.Config{Image: used, Cmd: []string{"x"}}, &container.HostConfig{NetworkMode: "none"}, nil, nil, "")
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, eng.ContainerRemove(context.WithoutCancel(t.Context()), c.ID, container.RemoveOptions{Force: true}))
	}()

	report, err := prune.Images(t.Context(), onlyMine{eng, prefix}, []lock.Lock{held}, prune.Options{
		UsageDir: t.TempDir(), Now: time.Now(), KeepBytes: 0,
	})
	require.NoError(t, err)
	require.Len(t, report.Removed, 1)
	assert.Equal(t, free, report.Removed[0].ID)
	kept := map[string]string{}
	for _, img := range report.Kept {
		kept[img.ID] = img.Reason
	}
	assert.Equal(t, map[string]string{locked: "locked", used: "a container uses it"}, kept)
	_, err = eng.ImageInspect(t.Context(), free)
	assert.True(t, errdefs.IsNotFound(err))
	_, err = eng.ImageInspect(t.Context(), unlabelled)
	require.NoError(t, err)
}
