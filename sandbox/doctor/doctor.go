// Package doctor checks an engine, its machine and the state directory, and runs small
// programs in the sandbox that try to break each limit.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/disk"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// A Verdict is how a check ended.
type Verdict string

// The verdicts. Info is neither good nor bad.
const (
	OK   Verdict = "ok"
	Info Verdict = "info"
	Warn Verdict = "warn"
	Fail Verdict = "fail"
)

// A Finding is the end of one check.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	// Seen is the observation. Advice suggests a fix; it may be empty.
	Seen   string `json:"seen"`
	Advice string `json:"fix"`
	// Manifest is YAML for kubectl apply that belongs to the advice; empty for none.
	Manifest string `json:"manifest,omitempty"`
	// Err is the reason that a check could not be done. It may have a method Hint() string.
	Err error `json:"-"`
}

// A Machine is the subject of an examination.
type Machine struct {
	// Address selects the Docker engine. Cluster, unless it is nil, examines a cluster instead.
	Address docker.Address
	Cluster func(context.Context) []Finding
	// StateDir is the directory of records.
	StateDir string
	// Runner is nil if there is no engine at the address, or no cluster.
	Runner *sandbox.Runner
	// Request has the image, the runtime and the transfer of a run that names none.
	Request sandbox.Request
	// Images are the names of the catalog.
	Images []string
	// Deep also runs hostile and honest programs with exact expectations; see
	// [github.com/evalbox/evalbox/sandbox/probe].
	Deep bool
	// GPU also reports the GPUs, and runs a program with one.
	GPU bool
}

// Examine does all checks. The later ones need the results of the earlier ones: where one
// is missing, they are left out. The error is the cause of a context that has ended.
func Examine(ctx context.Context, m Machine) ([]Finding, error) {
	findings := m.checkWay(ctx)
	state := checkState(m.StateDir)
	if m.Runner == nil || m.Cluster != nil && slices.ContainsFunc(findings, isFailed) {
		return append(findings, state), context.Cause(ctx)
	}
	info, err := m.Runner.Info(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return append(findings, state, failed("engine", err)), nil
	}
	if m.Cluster == nil {
		findings = append(findings, checkEngine(info)...)
	}
	findings = append(findings, state, checkDisk(m.StateDir, info))
	if m.Cluster == nil {
		findings = append(findings, checkDiskLimit(disk.CanLoop()))
	}
	findings = append(findings, checkLeftovers(ctx, m.Runner))
	driver := ""
	if m.GPU {
		var seen []Finding
		seen, driver = m.seeGPUs(ctx, info)
		findings = append(findings, seen...)
	}
	image, spec := m.checkImage(ctx)
	findings = append(findings, image)
	if image.Verdict != Fail {
		findings = append(findings, checkTransfer(spec))
	}
	if image.Verdict == Fail || state.Verdict == Fail {
		return findings, nil
	}
	findings = append(findings, m.probe(ctx)...)
	if m.GPU {
		findings = append(findings, m.tryGPU(ctx, info.Local && driver == ""))
	}
	if m.Deep {
		findings = append(findings, m.deep(ctx, info, spec)...)
	}
	return findings, context.Cause(ctx)
}

// checkWay looks at the way to the engine, and, if it is a cluster, at the cluster.
func (m Machine) checkWay(ctx context.Context) []Finding {
	if m.Cluster != nil {
		return m.Cluster(ctx)
	}
	return []Finding{checkAddress(dockerhost.Find(m.Address))}
}

func isFailed(f Finding) bool { return f.Verdict == Fail }

// failed is the finding of a check that could not be done.
func failed(check string, err error) Finding {
	return Finding{Check: check, Verdict: Fail, Seen: text.OneLine(err.Error()), Err: err}
}

// checkState makes sure that records can be written.
func checkState(dir string) Finding {
	const check = "state directory"
	if err := tryWriting(dir); err != nil {
		return Finding{Check: check, Verdict: Fail, Seen: text.OneLine(err.Error()),
			Advice: "make it writable, or choose another with --state-dir"}
	}
	return Finding{Check: check, Verdict: OK, Seen: dir}
}

// tryWriting makes a file in the directory and removes it. The directory is made for
// its owner alone, as the first run would do.
func tryWriting(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return err
	}
	_, err = file.WriteString("writable\n")
	return errors.Join(err, file.Close(), os.Remove(file.Name()))
}

// scarce is how little free disk is worth a warning.
const scarce = 2 * policy.GiB

// checkDisk looks at the room for records and for the engine.
func checkDisk(stateDir string, info engine.Info) Finding {
	f := Finding{Check: "disk", Verdict: Info, Seen: "the free space cannot be measured here"}
	for _, place := range []struct{ what, dir string }{{"records", stateDir}, {"engine", info.RootDir}} {
		free, ok := fsx.FreeBytes(place.dir)
		if !ok {
			continue
		}
		text := fmt.Sprintf("%s free for the %s", text.Size(free), place.what)
		if f.Verdict == Info {
			f.Verdict, f.Seen = OK, text
		} else {
			f.Seen += ", " + text
		}
		if free < int64(scarce) {
			f.Verdict, f.Advice = Warn, "delete old records with: sandbox rm"
			if info.RootDir != "" {
				f.Advice += "; and unused images with: docker image prune"
			}
		}
	}
	return f
}

// checkDiskLimit says how the disk limit of a run can be enforced here. noLoop is why it cannot have a
// file system of its own.
func checkDiskLimit(noLoop error) Finding {
	f := Finding{Check: "disk limit", Verdict: Info, Seen: "a size limit of each file, and measurements; with disk_bound: hard a file system of that size"}
	if noLoop != nil {
		f.Seen = fmt.Sprintf("a size limit of each file, and measurements; disk_bound: hard %v", noLoop)
		f.Advice = "for disk_bound: hard, run as root on Linux with loop devices and e2fsprogs"
	}
	return f
}
