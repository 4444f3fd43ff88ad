package judge

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/wish"
	"github.com/evalbox/evalbox/internal/text"
)

// checkLock compares the run manifest with the sealed wish that it names. What was not
// sealed says so, and has nothing to be compared with.
func (in *Input) checkLock(root *os.Root) error {
	if in.Manifest.Schema != evidence.RunManifestV1 || !in.Manifest.Mode.Sealed {
		return nil
	}
	sealed, err := evidence.ReadText(root, evidence.WishLockFile, wish.MaxDocument)
	if err != nil {
		return in.took(evidence.WishLockFile, err)
	}
	lock, err := wish.ParseLock(sealed, evidence.WishLockFile)
	switch {
	case errors.Is(err, wish.ErrChanged):
		in.tampered(evidence.WishLockFile, 0, "%s does not hold what was sealed: its content and its hash differ.", evidence.WishLockFile)
		return nil
	case err != nil:
		return in.took(evidence.WishLockFile, &evidence.FileError{File: evidence.WishLockFile, Rule: "is no sealed wish: " + shortened(text.OneLine(err.Error())), Err: err})
	}
	for _, part := range disagreements(lock, in.Manifest) {
		in.tampered(evidence.WishLockFile, 0, "%s and %s do not agree on %s.", evidence.WishLockFile, evidence.RunManifestFile, part)
	}
	return nil
}

// disagreements are the parts of a manifest that do not follow from its wish. Flags make a
// run stricter, never laxer. A replay runs in the image that was recorded, and makes no
// claim of its own. It is pure.
func disagreements(l wish.Lock, m evidence.RunManifest) (parts []string) {
	w := l.Wish
	differ := func(part string, yes bool) {
		if yes {
			parts = append(parts, part)
		}
	}
	differ("the hash of the wish", l.SHA256 != m.WishSHA256)
	differ("the commands", !slices.EqualFunc(w.GateCommands, m.Gates, func(c wish.Command, g evidence.Gate) bool {
		return c.Cmd == g.Cmd && c.ExpectExit == g.ExpectExit && c.Kind == g.Kind && c.Report == g.Report
	}))
	want := l.Toolchain
	if m.Mode.Replay && want.ImageID == "" {
		want.ImageID = m.Toolchain.ImageID
	}
	differ("the image", want.Image != m.Toolchain.Image || want.ImageID != m.Toolchain.ImageID || want.Locked != m.Toolchain.Locked)
	differ("the tools", want.Python != m.Toolchain.Python || !slices.Equal(want.Mounts, m.Toolchain.Mounts))
	differ("offline", w.Offline && !m.Mode.Offline)
	differ("the network", m.Egress != nil && (w.Offline || !sameNetwork(w.Network, *m.Egress)))
	differ("strict", w.Strict && !m.Mode.Strict)
	differ("claim_grade", w.ClaimGrade && !m.Mode.ClaimGrade && !m.Mode.Replay)
	differ("allow_unobserved", m.Mode.AllowUnobserved && !w.AllowUnobserved)
	differ("the protected paths", !slices.Equal(w.ProtectedPaths, m.ProtectedPaths))
	differ("the read-only paths", !slices.Equal(w.ReadOnlyPaths, m.ReadOnlyPaths))
	differ("the rules of normalization", !slices.Equal(w.Normalize, m.Rules) || !slices.Equal(w.AllowSuspects, m.Allowed))
	return parts
}

func sameNetwork(a, b evidence.Egress) bool {
	return a.Level == b.Level && slices.Equal(a.Allow, b.Allow) && slices.Equal(a.Deny, b.Deny)
}

// tampered adds a contradiction between files whose hashes fit.
func (in *Input) tampered(file string, gate int, format string, args ...any) {
	in.Check.Findings = append(in.Check.Findings, evidence.Finding{
		Reason: evidence.ReasonTampered, Gate: gate, Subject: file, Detail: fmt.Sprintf(format, args...),
	})
}
