package main

import (
	"archive/tar"
	"bytes"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dockerregistry "github.com/docker/docker/api/types/registry"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images/push"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// TestImage pushes the image to a registry, and reads it as an engine does.
func TestImage(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	defer server.Close()
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			dir := t.TempDir()
			porter, out := filepath.Join(dir, "porter"), filepath.Join(dir, "out.tar")
			require.NoError(t, os.WriteFile(porter, []byte("a porter"), 0o600))
			require.NoError(t, run(arch, porter, out))
			first, err := os.ReadFile(out)
			require.NoError(t, err)
			require.NoError(t, os.Chtimes(porter, time.Time{}, time.Unix(1, 0)))
			require.NoError(t, run(arch, porter, out))
			second, err := os.ReadFile(out)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(first, second), "the same programs give the same bytes")

			to, err := push.ParseTarget(strings.TrimPrefix(server.URL, "http://") + "/team/init:" + arch)
			require.NoError(t, err)
			pushed, err := push.File(t.Context(), out, to, push.Options{
				Credentials: func(string) (dockerregistry.AuthConfig, error) { return dockerregistry.AuthConfig{}, nil },
			})
			require.NoError(t, err)
			assert.Equal(t, "linux/"+arch, pushed.Platform)
			ref, err := name.ParseReference(pushed.Reference)
			require.NoError(t, err)
			img, err := remote.Image(ref)
			require.NoError(t, err)
			config, err := img.ConfigFile()
			require.NoError(t, err)
			assert.Equal(t, map[string]string{"org.opencontainers.image.version": wire.BuildID()}, config.Config.Labels)
			layers, err := img.Layers()
			require.NoError(t, err)
			require.Len(t, layers, 1)
			root, err := layers[0].Uncompressed()
			require.NoError(t, err)
			defer root.Close()
			initProgram, err := wire.Init(arch)
			require.NoError(t, err)
			in := tar.NewReader(root)
			for _, want := range []file{{"init", 0o555, initProgram}, {"porter", 0o555, []byte("a porter")}} {
				header, err := in.Next()
				require.NoError(t, err)
				assert.Equal(t, want.name, header.Name)
				assert.Equal(t, want.mode, header.Mode)
				assert.Equal(t, []int{0, 0}, []int{header.Uid, header.Gid})
				assert.Equal(t, int64(0), header.ModTime.Unix())
				data, err := io.ReadAll(in)
				require.NoError(t, err)
				assert.True(t, bytes.Equal(want.data, data), want.name)
			}
			_, err = in.Next()
			require.ErrorIs(t, err, io.EOF, "there is nothing else")
		})
	}
}

func TestRefusals(t *testing.T) {
	_, err := build("riscv64", nil)
	require.ErrorContains(t, err, `no sandbox-init for the architecture "riscv64"`)
	require.ErrorIs(t, run("amd64", filepath.Join(t.TempDir(), "nosuch"), "out"), os.ErrNotExist)
}
