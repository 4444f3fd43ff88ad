package imagestest

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/client"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// An Image has one layer, which is called as its file system.
type Image struct {
	// Root is the tar archive of the file system.
	Root []byte `json:"root"`
	// Parent is the ID of the image that it was built on.
	Parent  string            `json:"parent"`
	Digests []string          `json:"digests"`
	Labels  map[string]string `json:"labels"`
}

// created is when every image was made.
const created = "2026-01-01T00:00:00.5Z"

// find looks an image up by its tag, its digest or its ID.
func (e *Engine) find(ref string) (id string, img Image, ok bool) {
	if id, ok := e.Tags[ref]; ok {
		return id, e.Images[id], true
	}
	for id, img := range e.Images {
		if id == ref || slices.Contains(img.Digests, ref) {
			return id, img, true
		}
	}
	return "", Image{}, false
}

func (e *Engine) tagsOf(id string) []string {
	var tags []string
	for tag, of := range e.Tags {
		if of == id {
			tags = append(tags, tag)
		}
	}
	return tags
}

func (e *Engine) ImageInspect(ctx context.Context, ref string, _ ...client.ImageInspectOption) (image.InspectResponse, error) {
	end, err := e.begin(ctx, "inspect")
	defer end()
	id, img, ok := e.find(ref)
	if err == nil && !ok {
		err = errdefs.ErrNotFound
	}
	if err != nil {
		return image.InspectResponse{}, err
	}
	return image.InspectResponse{
		ID: id, RepoTags: e.tagsOf(id), RepoDigests: img.Digests, Os: "linux", Architecture: "arm64", Variant: "v8", Created: created, Size: 1000,
		RootFS: image.RootFS{Layers: []string{HexOf(string(img.Root))}},
		Config: &dockerspec.DockerOCIImageConfig{ImageConfig: ocispec.ImageConfig{User: e.User}},
	}, nil
}

// ImageList says of an image without a name that it is called <none>, as old engines do.
func (e *Engine) ImageList(ctx context.Context, _ image.ListOptions) ([]image.Summary, error) {
	end, err := e.begin(ctx, "list")
	defer end()
	var all []image.Summary
	for id, img := range e.Images {
		tags := e.tagsOf(id)
		if tags == nil {
			tags = []string{"<none>:<none>"}
		}
		all = append(all, image.Summary{ID: id, ParentID: img.Parent, RepoTags: tags, RepoDigests: img.Digests, Labels: img.Labels, Size: 1000})
	}
	if e.OnList != nil {
		e.OnList()
	}
	return all, err
}

func (e *Engine) ImageTag(ctx context.Context, source, target string) error {
	end, err := e.begin(ctx, "tag")
	defer end()
	e.Tags[target] = source
	return err
}

// ImageRemove removes a name, and an image that has no other.
func (e *Engine) ImageRemove(ctx context.Context, ref string, opts image.RemoveOptions) ([]image.DeleteResponse, error) {
	end, err := e.begin(ctx, "remove image")
	defer end()
	e.OutlivedCancel = ctx.Err() == nil
	if err != nil {
		return nil, err
	}
	id, _, ok := e.find(ref)
	if !ok {
		return nil, errdefs.ErrNotFound
	}
	for _, c := range e.Containers {
		if c.ImageID == id && !opts.Force {
			return nil, errdefs.ErrConflict
		}
	}
	delete(e.Tags, ref)
	if len(e.tagsOf(id)) == 0 {
		delete(e.Images, id)
	}
	return nil, nil
}

// ImageSave writes a manifest with all names of the image, and the image as its one layer.
func (e *Engine) ImageSave(ctx context.Context, refs []string, _ ...client.ImageSaveOption) (io.ReadCloser, error) {
	end, err := e.begin(ctx, "save")
	defer end()
	id, img, ok := e.find(refs[0])
	if err == nil && !ok {
		err = errdefs.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	folder := HexOf(id) + "/"
	manifest, err := json.Marshal([]map[string]any{{"Config": id, "RepoTags": refs, "Layers": []string{folder + "layer.tar"}}})
	if err != nil {
		return nil, err
	}
	layer, err := json.Marshal(img)
	if err != nil {
		return nil, err
	}
	var saved bytes.Buffer
	err = writeTar(&saved, []Member{
		{Name: folder, Kind: tar.TypeDir}, {Name: folder + "layer.tar", Body: string(layer)},
		{Name: "repositories", Body: "{}"}, {Name: "manifest.json", Body: string(manifest)},
	})
	return io.NopCloser(&saved), err
}

// ImageLoad takes what ImageSave wrote, and every name in it.
func (e *Engine) ImageLoad(ctx context.Context, input io.Reader, _ ...client.ImageLoadOption) (image.LoadResponse, error) {
	var manifest []struct {
		Config   string   `json:"Config"`
		RepoTags []string `json:"RepoTags"`
	}
	var img Image
	in := tar.NewReader(input)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && header.Name == "manifest.json" {
			err = json.NewDecoder(in).Decode(&manifest)
		} else if err == nil && path.Base(header.Name) == "layer.tar" && header.Typeflag == tar.TypeReg {
			err = json.NewDecoder(in).Decode(&img)
		}
		if err != nil {
			return image.LoadResponse{}, err
		}
	}
	end, err := e.begin(ctx, "load")
	defer end()
	if err != nil {
		return image.LoadResponse{}, err
	}
	id := manifest[0].Config
	e.Images[id] = img
	for _, tag := range manifest[0].RepoTags {
		e.Tags[tag] = id
	}
	if e.OnLoad != nil {
		e.OnLoad(id)
	}
	return image.LoadResponse{JSON: true, Body: e.answer("load", e.Loaded+`{"stream":"Loaded image ID: `+id+`\n"}`)}, nil
}

// ImageImport makes the image "sha256:base".
func (e *Engine) ImageImport(ctx context.Context, source image.ImportSource, ref string, _ image.ImportOptions) (io.ReadCloser, error) {
	end, err := e.begin(ctx, "import")
	end()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(source.Source)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.FailLate["import"] == nil {
		e.Imported = data
		e.Images["sha256:base"], e.Tags[ref] = Image{}, "sha256:base"
	}
	return e.answer("import", `{"status":"sha256:base"}`), nil
}

// ImageBuild makes the image "sha256:new" on the image "sha256:step", which stays even if the
// build fails.
func (e *Engine) ImageBuild(ctx context.Context, buildContext io.Reader, opts build.ImageBuildOptions) (build.ImageBuildResponse, error) {
	var failed error
	if e.OnBuild != nil {
		failed = e.OnBuild(ctx)
	}
	data, readErr := io.ReadAll(buildContext)
	end, err := e.begin(ctx, "build")
	defer end()
	e.BuildContext = data
	if err = errors.Join(err, readErr); err != nil {
		return build.ImageBuildResponse{}, err
	}
	if failed != nil {
		e.FailLate["build"] = failed
	}
	e.Images["sha256:step"] = Image{Parent: "sha256:base", Labels: e.StepLabels}
	if e.FailLate["build"] == nil {
		e.Built = opts
		e.Images["sha256:new"], e.Tags[opts.Tags[0]] = Image{Parent: "sha256:step"}, "sha256:new"
	}
	return build.ImageBuildResponse{Body: e.answer("build", `{"stream":"Step 1/1 : FROM\n"}`)}, nil
}

func (e *Engine) DistributionInspect(ctx context.Context, ref, auth string) (registry.DistributionInspect, error) {
	end, err := e.begin(ctx, "distribution")
	defer end()
	e.Pulled.Auth = auth
	now, ok := e.Registry[ref]
	if err == nil && !ok {
		err = errdefs.ErrNotFound
	}
	return registry.DistributionInspect{Descriptor: ocispec.Descriptor{Digest: digest.Digest(now)}}, err
}

// ImagePull makes the image "sha256:pulled".
func (e *Engine) ImagePull(ctx context.Context, ref string, opts image.PullOptions) (io.ReadCloser, error) {
	end, err := e.begin(ctx, "pull")
	defer end()
	e.Pulled.Ref, e.Pulled.Auth, e.Pulled.Platform = ref, opts.RegistryAuth, opts.Platform
	if err != nil {
		return nil, err
	}
	if e.FailLate["pull"] == nil {
		e.Images["sha256:pulled"] = Image{Digests: []string{ref}}
	}
	return e.answer("pull", `{"status":"Pulling from tools"}`), nil
}
