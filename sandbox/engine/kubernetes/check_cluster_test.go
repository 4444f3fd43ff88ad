//go:build linux && cluster

package kubernetes_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/kubernetes"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// account creates a namespace that enforces the restricted profile, with an account that has these
// permissions, and returns a configuration with its token.
func account(t *testing.T, permissions []kubernetes.Permission) engine.Cluster {
	t.Helper()
	c := config(t)
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	file, err := rules.Load()
	require.NoError(t, err)
	admin, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	require.NoError(t, err)
	k, err := client.NewForConfig(admin)
	require.NoError(t, err)
	namespace, err := k.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "evalbox-doctor-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	name := namespace.Name
	t.Cleanup(func() {
		require.NoError(t, k.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}))
	})
	_, err = k.CoreV1().ServiceAccounts(name).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "runner"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "evalbox"}}
	for _, p := range permissions {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{p.Group}, Resources: []string{p.Resource}, Verbs: p.Verbs})
	}
	_, err = k.RbacV1().Roles(name).Create(t.Context(), role, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = k.RbacV1().RoleBindings(name).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "evalbox"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "evalbox"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: name, Name: "runner"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	token, err := k.CoreV1().ServiceAccounts(name).CreateToken(t.Context(), "runner", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	file.AuthInfos = map[string]*api.AuthInfo{"runner": {Token: token.Status.Token}}
	for _, each := range file.Contexts {
		each.AuthInfo, each.Namespace = "runner", name
	}
	c.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*file, c.Kubeconfig))
	return c
}

func texts(r kubernetes.Report, grade kubernetes.Grade) (all []string) {
	for _, f := range r.Findings {
		if f.Grade == grade {
			all = append(all, f.Check+": "+f.Text)
		}
	}
	return all
}

// TestRoleSuffices runs a program as an account with the Role alone.
func TestRoleSuffices(t *testing.T) {
	c := account(t, kubernetes.Role())
	report, err := kubernetes.Check(t.Context(), c, "")
	require.NoError(t, err)
	require.Empty(t, texts(report, kubernetes.Bad))
	require.Empty(t, report.Missing)
	require.Contains(t, texts(report, kubernetes.Good), "job admission: the cluster accepts the Job of a run")

	e, err := kubernetes.Connect(c)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	image := os.Getenv("EVALBOX_KUBERNETES_IMAGE")
	class := spec.Class{Image: spec.Image{Reference: image, Digest: image}, User: spec.DedicatedUser, WorkDir: "/", Network: "none",
		Cgroup: spec.Cgroup{MemoryBytes: 64 << 20, NanoCPUs: 1e9}}
	box, err := e.Prepare(t.Context(), class, engine.Meta{Name: "evalbox-role"})
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, box.Start(t.Context(), spec.Job{RunID: "role", Command: []string{"/bin/echo", "hello"}}, engine.Streams{Stdout: &out}))
	end, err := box.Wait(t.Context())
	require.NoError(t, err)
	require.Zero(t, end.ExitCode)
	require.Equal(t, "hello\n", out.String())
	found, err := e.List(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, box.Remove(t.Context()))
}

// TestCheckNamesEachMissingPermission takes one permission at a time from the Role.
func TestCheckNamesEachMissingPermission(t *testing.T) {
	for i, p := range kubernetes.Role() {
		for j, verb := range p.Verbs {
			t.Run(verb+" of "+strings.ReplaceAll(p.Resource, "/", "-"), func(t *testing.T) {
				lacking := slices.Clone(kubernetes.Role())
				lacking[i].Verbs = slices.Delete(slices.Clone(p.Verbs), j, j+1)
				if len(lacking[i].Verbs) == 0 {
					lacking = slices.Delete(lacking, i, i+1)
				}
				report, err := kubernetes.Check(t.Context(), account(t, lacking), "")
				require.NoError(t, err)
				require.Equal(t, []kubernetes.Permission{{Group: p.Group, Resource: p.Resource, Verbs: []string{verb}}}, report.Missing)
				require.Contains(t, texts(report, kubernetes.Bad), "permissions: the account lacks: "+verb+" of "+p.Resource)
				require.Contains(t, kubernetes.RoleYAML("", report.Missing), "- "+verb+" # missing\n")
			})
		}
	}
}
