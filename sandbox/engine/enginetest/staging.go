package enginetest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/archive"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// testStaging copies files to the engine and back.
func testStaging(t *testing.T, s *suite) {
	e := s.connect(t)
	copier, ok := e.(engine.Copier)
	if !ok {
		t.Fatal("the engine is not a Copier; say so in Options.Without")
	}
	meta := s.meta(t)
	id := meta.Labels[spec.LabelRun]
	run := spec.Spec{Class: s.class(), Job: spec.Job{RunID: id}}
	run.Class.Transfer = spec.TransferCopy
	run.Class.Binds = []spec.Bind{{Role: spec.RoleInput, Target: spec.InputDir, ReadOnly: true}, {Role: spec.RoleFinal, Target: spec.FinalDir}}
	require.ErrorIs(t, copier.FillVolume(t.Context(), id, bytes.NewReader(nil)), engine.ErrNoContainer)
	base, err := copier.CreateVolume(t.Context(), run, meta.Labels)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, copier.RemoveVolume(context.WithoutCancel(t.Context()), id)) })
	_, err = copier.CreateVolume(t.Context(), run, meta.Labels)
	require.ErrorIs(t, err, engine.ErrNameTaken)

	require.NoError(t, copier.FillVolume(t.Context(), id, stagedArchive(t)))
	hasHelper := s.can("helper")
	if hasHelper {
		helpers := s.found(t, e, spec.HelperName(id))
		require.Len(t, helpers, 1)
		require.Equal(t, spec.PartHelper, helpers[0].Labels[spec.LabelPart])
		require.False(t, helpers[0].Running)
	}

	meta.Sources = archive.Sources(base, run)
	got := s.runs(t, e, run.Class, meta, "staging")
	require.Equal(t, "sent True\n", got.stdout)

	if hasHelper { // another client removes it
		require.NoError(t, e.Remove(t.Context(), spec.HelperName(id)))
		_, err = copier.FetchVolume(t.Context(), id, archive.FinalDir)
		require.ErrorIs(t, err, engine.ErrNoContainer)
		require.NoError(t, copier.RecreateHelper(t.Context(), run, meta.Labels))
	}
	files, err := copier.FetchVolume(t.Context(), id, archive.FinalDir)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"final": "", "final/d": "", "final/d/out": "out"}, unpacked(t, files))

	conversation, err := copier.MonitorVolume(t.Context(), run, meta.Labels)
	require.NoError(t, err)
	var answer, trouble recorder
	ended := make(chan struct{})
	go func() {
		_ = conversation.Copy(&answer, &trouble) // Close breaks it off
		close(ended)
	}()
	_, err = io.WriteString(conversation.Stdin(), "free\n")
	require.NoError(t, err)
	soon(t, "the disk monitor does not answer: "+trouble.String(), func() bool { return strings.Contains(answer.String(), "\n") })
	require.NoError(t, conversation.Close())
	<-ended
	require.NoError(t, conversation.Close())
	s.removesVolume(t, e, copier, id)
}

// removesVolume removes a staging volume with all its parts.
func (s *suite) removesVolume(t *testing.T, e engine.Engine, copier engine.Copier, id string) {
	t.Helper()
	for range 2 {
		require.NoError(t, copier.RemoveVolume(t.Context(), id))
	}
	volumes, err := copier.Volumes(t.Context())
	require.NoError(t, err)
	for _, volume := range volumes {
		require.NotEqual(t, spec.VolumeName(id), volume.Name)
	}
	for _, helper := range []string{spec.HelperName(id), spec.MonitorName(id)} {
		require.Empty(t, s.found(t, e, helper))
	}
}

// unpacked returns the content of an archive by name.
func unpacked(t *testing.T, from io.ReadCloser) map[string]string {
	t.Helper()
	files := map[string]string{}
	for reader := tar.NewReader(from); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			require.NoError(t, from.Close())
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(reader)
		require.NoError(t, err)
		files[strings.TrimSuffix(header.Name, "/")] = string(text)
	}
}

func stagedArchive(t *testing.T) io.Reader {
	t.Helper()
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, header := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: archive.InputDir + "/", Mode: 0o755}, {Name: archive.InputDir + "/a", Mode: 0o644, Size: 4},
		{Typeflag: tar.TypeSymlink, Name: archive.InputDir + "/link", Linkname: "a"},
		{Typeflag: tar.TypeDir, Name: "out/", Mode: 0o755}, {Typeflag: tar.TypeDir, Name: "out/final/", Mode: 0o777, Uid: userID, Gid: userID},
	} {
		require.NoError(t, w.WriteHeader(&header))
		if header.Size > 0 {
			_, err := io.WriteString(w, "sent")
			require.NoError(t, err)
		}
	}
	require.NoError(t, w.Close())
	return &text
}
