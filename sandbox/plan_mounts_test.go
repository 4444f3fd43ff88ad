package sandbox

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

func mountsRequest() Request {
	return Request{
		ID: "mounts", Image: "debian", Command: []string{"make"}, User: "1000:1000", Host: smallHost,
		WorkDir: "/repo/src",
		Mounts: []Mount{{Source: "/etc/ssl/openssl.cnf", Target: "/host/etc/ssl/openssl.cnf"}, {Source: "/home/ada/project", Target: "/repo"},
			{Source: "/home/ada/project/src/vendor", Target: "/repo/src/vendor"}, {Source: "/answers", Target: "/work/input/answers"}},
		Trees:  []Tree{{Target: "/work/out"}, {Source: "/home/ada/project/src", Target: "/repo/src", Exclude: []string{"node_modules", "/home/ada/project/src/.git"}}},
		Masks:  []string{"/repo/src/.env", "/repo/secrets/", "/repo/secrets/key", "/repo/src/private/"},
		Limits: policy.Limits{PIDs: 1}, NoFork: true,
	}
}

func TestPlanMountsGolden(t *testing.T) {
	spec, err := Plan(mountsRequest(), policy.Policy{})
	require.NoError(t, err)
	requireGolden(t, "spec-mounts.json", spec)
}

// TestPlanMountsAreOrdered: the order of a request does not show.
func TestPlanMountsAreOrdered(t *testing.T) {
	one := mountsRequest()
	first, err := Plan(one, policy.Policy{})
	require.NoError(t, err)
	one.Mounts = []Mount{one.Mounts[3], one.Mounts[1], one.Mounts[0], one.Mounts[2]}
	one.Trees = []Tree{one.Trees[1], one.Trees[0]}
	one.Masks = []string{one.Masks[3], one.Masks[1], one.Masks[0], one.Masks[2]}
	second, err := Plan(one, policy.Policy{})
	require.NoError(t, err)
	require.Equal(t, first, second)
}

func TestPlanRefusesMounts(t *testing.T) {
	for name, test := range map[string]struct {
		change func(r *Request)
		field  string
	}{
		"target of the system":       {func(r *Request) { r.Mounts[0].Target = "/etc" }, "mount"},
		"target of a program":        {func(r *Request) { r.Mounts[0].Target = "/usr/lib/x" }, "mount"},
		"root":                       {func(r *Request) { r.Mounts[0].Target = "/" }, "mount"},
		"proc":                       {func(r *Request) { r.Mounts[0].Target = "/proc/self" }, "mount"},
		"dev":                        {func(r *Request) { r.Trees[0].Target = "/dev/shm/x" }, "tree"},
		"tmp":                        {func(r *Request) { r.Trees[0].Target = "/tmp/x" }, "tree"},
		"all of host":                {func(r *Request) { r.Mounts[0].Target = "/host" }, "mount"},
		"the working directory":      {func(r *Request) { r.Mounts[0].Target = "/work" }, "mount"},
		"input":                      {func(r *Request) { r.Mounts[0].Target = "/work/input" }, "mount"},
		"final":                      {func(r *Request) { r.Mounts[0].Target = "/work/final" }, "mount"},
		"in final":                   {func(r *Request) { r.Trees[0].Target = "/work/final/x" }, "tree"},
		"the program":                {func(r *Request) { r.Command, r.Script, r.Mounts[0].Target = nil, "/x/p.py", "/work/p.py" }, "mount"},
		"in the program":             {func(r *Request) { r.Command, r.Script, r.Mounts[0].Target = nil, "/x/p.py", "/work/p.py/x" }, "mount"},
		"like a folder of ours":      {func(r *Request) { r.Mounts[0].Target = "/repository" }, "mount"},
		"not absolute":               {func(r *Request) { r.Mounts[0].Target = "repo" }, "mount"},
		"not clean":                  {func(r *Request) { r.Mounts[0].Target = "/repo/../etc" }, "mount"},
		"slash at the end":           {func(r *Request) { r.Mounts[0].Target = "/repo/x/" }, "mount"},
		"control character":          {func(r *Request) { r.Mounts[0].Target = "/repo/a\nb" }, "mount"},
		"NUL":                        {func(r *Request) { r.Mounts[0].Target = "/repo/a\x00b" }, "mount"},
		"not UTF-8":                  {func(r *Request) { r.Mounts[0].Target = "/repo/\xff" }, "mount"},
		"endless":                    {func(r *Request) { r.Mounts[0].Target = "/repo/" + strings.Repeat("x", 2000) }, "mount"},
		"twice":                      {func(r *Request) { r.Mounts[0].Target = "/repo" }, "mount"},
		"a tree where a mount is":    {func(r *Request) { r.Trees[0].Target = "/repo" }, "tree"},
		"relative source":            {func(r *Request) { r.Mounts[0].Source = "x" }, "mount"},
		"root as source":             {func(r *Request) { r.Mounts[0].Source = "/" }, "mount"},
		"no source":                  {func(r *Request) { r.Mounts[0].Source = "" }, "mount"},
		"root as tree":               {func(r *Request) { r.Trees[0].Source = "/" }, "tree"},
		"final in a tree":            {func(r *Request) { r.Final = "/home/ada/project/src/out" }, "tree"},
		"a tree in final":            {func(r *Request) { r.Final = "/home/ada" }, "tree"},
		"exclude outside":            {func(r *Request) { r.Trees[1].Exclude = []string{"../x"} }, "tree"},
		"exclude elsewhere":          {func(r *Request) { r.Trees[1].Exclude = []string{"/etc"} }, "tree"},
		"exclude all":                {func(r *Request) { r.Trees[1].Exclude = []string{"."} }, "tree"},
		"exclude nothing":            {func(r *Request) { r.Trees[1].Exclude = []string{""} }, "tree"},
		"mask of the image":          {func(r *Request) { r.Masks = []string{"/usr/bin/python3"} }, "mask"},
		"mask of a mount":            {func(r *Request) { r.Masks = []string{"/repo/src/vendor/"} }, "mask"},
		"mask above a mount":         {func(r *Request) { r.Masks = []string{"/repo/src/"} }, "mask"},
		"mask of all":                {func(r *Request) { r.Masks = []string{"/"} }, "mask"},
		"mask of the input":          {func(r *Request) { r.Mounts = r.Mounts[:3]; r.Masks = []string{"/work/input"} }, "mask"},
		"mask that is not clean":     {func(r *Request) { r.Masks = []string{"/repo/../etc/shadow"} }, "mask"},
		"start elsewhere":            {func(r *Request) { r.WorkDir = "/usr" }, "workdir"},
		"start in what is not there": {func(r *Request) { r.WorkDir = "/work/nothing" }, "workdir"},
		"start in final's folder":    {func(r *Request) { r.WorkDir = "/work/final/x" }, "workdir"},
		"start in a mask":            {func(r *Request) { r.WorkDir = "/repo/secrets/deep" }, "workdir"},
		"relative start":             {func(r *Request) { r.WorkDir = "repo" }, "workdir"},
		"no fork and gVisor":         {func(r *Request) { r.Runtime = "runsc" }, "no-fork"},
		"gVisor by default":          {func(r *Request) { r.Host.DefaultRuntime = "runsc" }, "no-fork"},
	} {
		t.Run(name, func(t *testing.T) {
			req := mountsRequest()
			test.change(&req)
			_, err := Plan(req, policy.Policy{})
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, test.field, field.Field, err)
		})
	}
}
