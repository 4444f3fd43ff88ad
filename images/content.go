package images

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/image"
)

// contentOf is a hash ("sha256:…") over what a program can tell of an image: its
// file system, as the digests of its unpacked layers, and the part of its
// configuration that a run takes over. Engines that keep images in different
// stores give one image different IDs, and the same content.
func contentOf(found image.InspectResponse) string {
	form := struct {
		Platform   string   `json:"platform"`
		Layers     []string `json:"layers"`
		Env        []string `json:"env"`
		User       string   `json:"user"`
		Entrypoint []string `json:"entrypoint"`
		Cmd        []string `json:"cmd"`
		WorkingDir string   `json:"working_dir"`
		Volumes    []string `json:"volumes"`
	}{Platform: plainPlatform(platform(found)), Layers: list(found.RootFS.Layers)}
	if c := found.Config; c != nil {
		form.Env, form.User, form.WorkingDir = list(c.Env), c.User, c.WorkingDir
		form.Entrypoint, form.Cmd = list(c.Entrypoint), list(c.Cmd)
		form.Volumes = slices.Sorted(maps.Keys(c.Volumes))
	}
	text, err := json.Marshal(form)
	if err != nil { // strings always marshal
		panic(fmt.Sprintf("marshalling the content of image %s: %v", found.ID, err))
	}
	return "sha256:" + sha256Hex(string(text))
}

// list makes nil, which some engines send for empty, the same as empty.
func list(words []string) []string {
	if len(words) == 0 {
		return nil
	}
	return words
}

// plainPlatform leaves out the variant that every 64-bit ARM has, and that only
// some engines tell.
func plainPlatform(platform string) string {
	return strings.TrimSuffix(platform, "/v8")
}
