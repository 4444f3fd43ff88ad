package execute

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Labels of the runs of gates.
const (
	labelWish = "gate.wish_sha256"
	labelGate = "gate.index"
	labelSet  = "gate.set"
)

const (
	// defaultLogBytes bounds each kept stream if the manifest has no limit.
	defaultLogBytes = 32 << 20
	// leastCapture is the part of each stream in the result, beside the file: it explains how
	// the run ended.
	leastCapture = 4 * policy.KiB
)

// common is the request that all containers of a manifest share.
func (x *run) common(name string) sandbox.Request {
	req := sandbox.Request{
		ID: record.NewID(time.Now()), Name: runName(name), Labels: map[string]string{},
		Image: imageOf(x.m.Toolchain), AllowUnlocked: !x.m.Mode.ClaimGrade,
		User: x.o.Request.User, Runtime: x.o.Request.Runtime, Transfer: x.o.Request.Transfer,
		Env: environment(x.m.EnvPolicy, nil, x.path), NoDeadline: true,
	}
	maps.Copy(req.Labels, x.o.Request.Labels)
	req.Labels[labelWish] = x.m.WishSHA256
	for _, tool := range x.m.Toolchain.Mounts {
		req.Mounts = append(req.Mounts, sandbox.Mount{Source: tool.Source, Target: tool.Target})
	}
	return req
}

// request translates one gate of the manifest for the sandbox.
func (x *run) request(p *pass, g evidence.Gate) (sandbox.Request, error) {
	req := x.common(fmt.Sprintf("%s-%s", x.m.Name, evidence.Number(g.Index)))
	readOnly, err := x.readOnly(p.workspace)
	if err != nil {
		return req, err
	}
	req.Mounts = append(req.Mounts, readOnly...)
	req.Labels[labelGate] = strconv.Itoa(g.Index)
	req.Labels[trial.LabelRole] = fmt.Sprintf("gate %d", g.Index)
	if p.name != "" {
		req.Labels[labelSet] = p.name
		req.Labels[trial.LabelRole] = fmt.Sprintf("%s, gate %d", p.name, g.Index)
	}
	req.Command = g.Argv
	req.WorkDir = spec.RepoDir
	req.Trees = []sandbox.Tree{{Source: p.workspace, Target: spec.RepoDir, Exclude: x.m.Exclude}}
	for _, name := range x.m.ProtectedPaths {
		mask := path.Join(spec.RepoDir, name)
		if strings.HasSuffix(name, "/") {
			mask += "/"
		}
		req.Masks = append(req.Masks, mask)
	}
	req.Env = environment(x.m.EnvPolicy, g.Env, x.path)
	req.Limits = limits(x.m.TimeoutCaps, g)
	if e := x.m.Egress; e != nil && !x.m.Mode.Offline {
		req.Egress = &policy.Egress{Level: policy.NetworkLevel(e.Level), Allow: e.Allow, Deny: e.Deny}
		if own := x.o.Request.Egress; own != nil {
			req.Egress.Resolve = own.Resolve
		}
	}
	// The kernel reports attempts at what the boundary and the mode forbid (RT-08, RT-09). The
	// result says what this engine cannot observe; that is for the judge.
	req.Observe = &sandbox.Observe{Network: true, Canaries: canaries(req.Env["HOME"]), Masks: true}
	return req, nil
}

// canaries are paths outside of the boundary that no test needs. Each is readable and holds
// nothing of worth; opening one is reported.
func canaries(home string) []string {
	all := []string{"/etc/shadow", "/etc/gshadow", "/root/.ssh/"}
	if home != "/root" {
		all = append(all, "~/.ssh/")
	}
	return all
}

// readOnly returns the mounts that keep a gate from changing the read-only paths of its copy.
// They do not show what is hidden.
func (x *run) readOnly(source string) (mounts []sandbox.Mount, err error) {
	if len(x.m.ReadOnlyPaths) == 0 {
		return nil, nil
	}
	var mounted []string
	return mounts, fsx.InRoot(source, func(root *os.Root) error {
		for _, name := range slices.Sorted(slices.Values(x.m.ReadOnlyPaths)) {
			name = path.Clean(name)
			if within(name, mounted) || within(name, x.m.ProtectedPaths) || !mountable(root, name) {
				continue
			}
			mounted = append(mounted, name)
			mounts = append(mounts, sandbox.Mount{Source: filepath.Join(source, filepath.FromSlash(name)), Target: path.Join(spec.RepoDir, name)})
		}
		return nil
	})
}

// environment is added to the fixed environment of every run (RT-05). Variables of the gate win
// over those of the policy. path is the search path if tools are mounted.
func environment(p evidence.EnvPolicy, own map[string]string, path string) map[string]string {
	env := map[string]string{}
	for name, value := range map[string]string{
		"TZ": p.Timezone, "LC_ALL": p.Locale, "LANG": p.Locale, "PYTHONHASHSEED": p.HashSeed, "PATH": path,
	} {
		if value != "" {
			env[name] = value
		}
	}
	maps.Copy(env, p.Vars)
	maps.Copy(env, own)
	return env
}

// limits returns the limits of one gate; zero fields are the sandbox's defaults.
func limits(c evidence.Caps, g evidence.Gate) policy.Limits {
	return policy.Limits{
		Timeout: time.Duration(cmp.Or(g.TimeoutMS, c.TimeoutMS)) * time.Millisecond,
		Memory:  policy.Size(c.MemoryBytes), CPUs: float64(c.MilliCPUs) / 1000, PIDs: c.PIDs, Disk: policy.Size(c.DiskBytes),
		StreamFile:    policy.Size(logBytes(c)),
		CaptureStdout: leastCapture, CaptureStderr: leastCapture,
	}
}

// logBytes bounds each kept stream.
func logBytes(c evidence.Caps) int64 { return cmp.Or(c.LogBytes, defaultLogBytes) }

// runName turns the name of a wish into a valid name of a run.
func runName(name string) string {
	name = "gate-" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			return r
		}
		return '-'
	}, name)
	const longest = 64
	if len(name) > longest {
		name = name[:longest]
	}
	return name
}

// imageOf names the image by its ID. A reference by that very digest stays as it is: a cluster
// finds no image by a digest alone.
func imageOf(t evidence.Toolchain) string {
	if t.ImageID == "" || strings.HasSuffix(t.Image, "@"+t.ImageID) {
		return t.Image
	}
	return t.ImageID
}
