//go:build linux && cluster

package kubernetes_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
)

// claim makes a claim with a volume that is a directory of the node, which is this machine.
func (l *lab) claim(name, dir string) {
	l.t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
	class, volume := "", l.namespace+"-"+name
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	_, err := l.k.CoreV1().PersistentVolumes().Create(l.t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume}, Spec: corev1.PersistentVolumeSpec{
		Capacity: size, AccessModes: modes, PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}}}, metav1.CreateOptions{})
	require.NoError(l.t, err)
	l.t.Cleanup(func() {
		require.NoError(l.t, l.k.CoreV1().PersistentVolumes().Delete(context.Background(), volume, metav1.DeleteOptions{}))
	})
	_, err = l.k.CoreV1().PersistentVolumeClaims(l.namespace).Create(l.t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}, StorageClassName: &class, VolumeName: volume}}, metav1.CreateOptions{})
	require.NoError(l.t, err)
}

// TestInputFromAClaim reads a data set of the cluster, which the program cannot change.
func TestInputFromAClaim(t *testing.T) {
	l := newLab(t, nil)
	dir := t.TempDir()
	for at := dir; at != filepath.Dir(os.TempDir()) && at != "/tmp"; at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o755))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "train"), 0o777))
	require.NoError(t, os.Chmod(filepath.Join(dir, "train"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "train", "data.txt"), []byte("of the cluster\n"), 0o644))
	l.claim("data", dir)
	req := small(`
import errno, os
print(open("input/data.txt").read().strip(), os.listdir("input"))
for change in (lambda: open("input/new", "w"), lambda: os.remove("input/data.txt"), lambda: os.chmod("input/data.txt", 0o777)):
    try:
        change()
        print("changed")
    except OSError as e:
        print(errno.errorcode[e.errno])
open("final/out.txt", "w").write("out")
`)
	r := l.runner()
	req.Input = "pvc://data/train"
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, "of the cluster ['data.txt']\nEROFS\nEROFS\nEROFS\n", res.Stdout, res.Stderr)
	require.Len(t, res.Outputs, 1)

	// A directory that is not there is not made.
	req.Input = "pvc://data/none"
	_, err = r.Run(t.Context(), req)
	require.ErrorIs(t, err, engine.ErrNotStarted)
	require.ErrorContains(t, err, "the input is not a directory of its volume: ")
	require.NoDirExists(t, filepath.Join(dir, "none"))

	req.Input = "pvc://nowhere"
	res, err = r.Run(t.Context(), req)
	var start *kubernetes.StartError
	require.ErrorAs(t, err, &start)
	require.Contains(t, start.Message, `persistentvolumeclaim "nowhere" not found`)
	require.Equal(t, result.StatusStartFailed, res.Status)
}
