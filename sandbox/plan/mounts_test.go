package plan

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func mountsRequest() request {
	return request{spec.Request{
		ID: "mounts", Image: "debian", Command: []string{"make"}, User: "1000:1000",
		WorkDir: "/repo/src",
		Mounts: []spec.Mount{{Source: "/etc/ssl/openssl.cnf", Target: "/host/etc/ssl/openssl.cnf"}, {Source: "/home/ada/project", Target: "/repo"},
			{Source: "/home/ada/project/src/vendor", Target: "/repo/src/vendor"}, {Source: "/answers", Target: "/work/input/answers"}},
		Trees:  []spec.Tree{{Target: "/work/out"}, {Source: "/home/ada/project/src", Target: "/repo/src", Exclude: []string{"node_modules", "/home/ada/project/src/.git"}}},
		Masks:  []string{"/repo/src/.env", "/repo/secrets/", "/repo/secrets/key", "/repo/src/private/"},
		Limits: policy.Limits{PIDs: 1}, NoFork: true,
	}, smallHost}
}

func TestPlanMountsGolden(t *testing.T) {
	got, err := planOf(mountsRequest(), policy.Policy{})
	require.NoError(t, err)
	treetest.GoldenJSON(t, "testdata/spec-mounts.json", got)
}

// TestPlanMountsAreOrdered: the order of a request does not show.
func TestPlanMountsAreOrdered(t *testing.T) {
	one := mountsRequest()
	first, err := planOf(one, policy.Policy{})
	require.NoError(t, err)
	one.Mounts = []spec.Mount{one.Mounts[3], one.Mounts[1], one.Mounts[0], one.Mounts[2]}
	one.Trees = []spec.Tree{one.Trees[1], one.Trees[0]}
	one.Masks = []string{one.Masks[3], one.Masks[1], one.Masks[0], one.Masks[2]}
	second, err := planOf(one, policy.Policy{})
	require.NoError(t, err)
	require.Equal(t, first, second)
}

func TestPlanRefusesMounts(t *testing.T) {
	for name, test := range map[string]struct {
		change func(r *request)
		field  string
	}{
		"target of the system":       {func(r *request) { r.Mounts[0].Target = "/etc" }, "mount"},
		"target of a program":        {func(r *request) { r.Mounts[0].Target = "/usr/lib/x" }, "mount"},
		"root":                       {func(r *request) { r.Mounts[0].Target = "/" }, "mount"},
		"proc":                       {func(r *request) { r.Mounts[0].Target = "/proc/self" }, "mount"},
		"dev":                        {func(r *request) { r.Trees[0].Target = "/dev/shm/x" }, "tree"},
		"tmp":                        {func(r *request) { r.Trees[0].Target = "/tmp/x" }, "tree"},
		"all of host":                {func(r *request) { r.Mounts[0].Target = "/host" }, "mount"},
		"the working directory":      {func(r *request) { r.Mounts[0].Target = "/work" }, "mount"},
		"input":                      {func(r *request) { r.Mounts[0].Target = "/work/input" }, "mount"},
		"final":                      {func(r *request) { r.Mounts[0].Target = "/work/final" }, "mount"},
		"in final":                   {func(r *request) { r.Trees[0].Target = "/work/final/x" }, "tree"},
		"the program":                {func(r *request) { r.Command, r.Script, r.Mounts[0].Target = nil, "/x/p.py", "/work/p.py" }, "mount"},
		"in the program":             {func(r *request) { r.Command, r.Script, r.Mounts[0].Target = nil, "/x/p.py", "/work/p.py/x" }, "mount"},
		"like one of evalbox":        {func(r *request) { r.Mounts[0].Target = "/repository" }, "mount"},
		"not absolute":               {func(r *request) { r.Mounts[0].Target = "repo" }, "mount"},
		"not clean":                  {func(r *request) { r.Mounts[0].Target = "/repo/../etc" }, "mount"},
		"slash at the end":           {func(r *request) { r.Mounts[0].Target = "/repo/x/" }, "mount"},
		"control character":          {func(r *request) { r.Mounts[0].Target = "/repo/a\nb" }, "mount"},
		"NUL":                        {func(r *request) { r.Mounts[0].Target = "/repo/a\x00b" }, "mount"},
		"not UTF-8":                  {func(r *request) { r.Mounts[0].Target = "/repo/\xff" }, "mount"},
		"endless":                    {func(r *request) { r.Mounts[0].Target = "/repo/" + strings.Repeat("x", 2000) }, "mount"},
		"twice":                      {func(r *request) { r.Mounts[0].Target = "/repo" }, "mount"},
		"a tree where a mount is":    {func(r *request) { r.Trees[0].Target = "/repo" }, "tree"},
		"relative source":            {func(r *request) { r.Mounts[0].Source = "x" }, "mount"},
		"root as source":             {func(r *request) { r.Mounts[0].Source = "/" }, "mount"},
		"no source":                  {func(r *request) { r.Mounts[0].Source = "" }, "mount"},
		"root as tree":               {func(r *request) { r.Trees[0].Source = "/" }, "tree"},
		"final in a tree":            {func(r *request) { r.Final = "/home/ada/project/src/out" }, "tree"},
		"a tree in final":            {func(r *request) { r.Final = "/home/ada" }, "tree"},
		"exclude outside":            {func(r *request) { r.Trees[1].Exclude = []string{"../x"} }, "tree"},
		"exclude elsewhere":          {func(r *request) { r.Trees[1].Exclude = []string{"/etc"} }, "tree"},
		"exclude all":                {func(r *request) { r.Trees[1].Exclude = []string{"."} }, "tree"},
		"exclude nothing":            {func(r *request) { r.Trees[1].Exclude = []string{""} }, "tree"},
		"mask of the image":          {func(r *request) { r.Masks = []string{"/usr/bin/python3"} }, "mask"},
		"mask of a mount":            {func(r *request) { r.Masks = []string{"/repo/src/vendor/"} }, "mask"},
		"mask above a mount":         {func(r *request) { r.Masks = []string{"/repo/src/"} }, "mask"},
		"mask of all":                {func(r *request) { r.Masks = []string{"/"} }, "mask"},
		"mask of the input":          {func(r *request) { r.Mounts = r.Mounts[:3]; r.Masks = []string{"/work/input"} }, "mask"},
		"mask that is not clean":     {func(r *request) { r.Masks = []string{"/repo/../etc/shadow"} }, "mask"},
		"start elsewhere":            {func(r *request) { r.WorkDir = "/usr" }, "workdir"},
		"start in what is not there": {func(r *request) { r.WorkDir = "/work/nothing" }, "workdir"},
		"start in final's directory": {func(r *request) { r.WorkDir = "/work/final/x" }, "workdir"},
		"start in a mask":            {func(r *request) { r.WorkDir = "/repo/secrets/deep" }, "workdir"},
		"relative start":             {func(r *request) { r.WorkDir = "repo" }, "workdir"},
		"no fork and gVisor":         {func(r *request) { r.Runtime = "runsc" }, "no-fork"},
		"gVisor by default":          {func(r *request) { r.Host.DefaultRuntime = "runsc" }, "no-fork"},
	} {
		t.Run(name, func(t *testing.T) {
			req := mountsRequest()
			test.change(&req)
			_, err := planOf(req, policy.Policy{})
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, test.field, field.Field, err)
		})
	}
}
