package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/dockerhost"
)

// A verdict is how a check ended.
type verdict string

const (
	verdictOK   verdict = "ok"
	verdictInfo verdict = "info"
	verdictWarn verdict = "warn"
	verdictFail verdict = "fail"
)

// A finding is one check of the doctor.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	// Seen is what was found, Mend what to do about it.
	Seen string `json:"seen"`
	Mend string `json:"mend"`
}

func newDoctorCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what works on this machine, and say how to mend the rest",
		Long: `Check the engine, its parts, the state folder and the image, and then run small programs
in the sandbox that try to break each limit. The exit code is 1 if a check failed.`,
		Example: "  sandbox doctor\n  sandbox doctor --json",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context()) },
	}
	a.settingFlags(cmd, false, "image", "runtime", "transfer", "json")
	return cmd
}

func (a *app) doctor(ctx context.Context) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	findings, err := a.examine(ctx, s)
	if err != nil {
		return err
	}
	for _, f := range findings {
		if f.Verdict == verdictFail {
			a.code = exitProblem
		}
	}
	if s.JSON {
		return a.printJSON(findings)
	}
	return a.printFindings(findings)
}

// examine does all checks. The later ones need what the earlier ones found: where
// one is missing, they are left out.
func (a *app) examine(ctx context.Context, s settings) ([]finding, error) {
	endpoint, err := dockerhost.Find(s.Engine)
	findings := []finding{checkAddress(endpoint, err)}
	if err != nil {
		store, err := s.store()
		if err != nil {
			return nil, err
		}
		return append(findings, checkState(store.Dir())), nil
	}
	runner, err := a.runner(s)
	if err != nil {
		return nil, err
	}
	defer runner.Close()
	state := checkState(runner.Store().Dir())
	info, err := runner.Info(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return append(findings, state, failed("engine", err)), nil
	}
	findings = append(findings, checkEngine(info)...)
	findings = append(findings, state, checkDisk(runner.Store().Dir(), info))
	findings = append(findings, checkLeftovers(ctx, runner))
	image, spec := checkImage(ctx, runner, s)
	findings = append(findings, image)
	if image.Verdict != verdictFail {
		findings = append(findings, checkTransfer(spec))
	}
	if image.Verdict == verdictFail || state.Verdict == verdictFail {
		return findings, nil
	}
	return append(findings, probe(ctx, runner, s)...), context.Cause(ctx)
}

// failed is the finding of a check that could not be done.
func failed(check string, err error) finding {
	f := finding{Check: check, Verdict: verdictFail, Seen: oneLine(err.Error())}
	if all := hints(err); len(all) > 0 {
		f.Mend = all[0]
	}
	return f
}

func (a *app) printFindings(findings []finding) error {
	p := palette(a.outTerminal) && a.palette()
	paint := map[verdict]func(string) string{
		verdictOK: p.good, verdictWarn: p.odd, verdictFail: p.bad,
		verdictInfo: func(text string) string { return text },
	}
	for _, f := range findings {
		label := paint[f.Verdict](fmt.Sprintf("%-4s", f.Verdict))
		text := fmt.Sprintf("%s  %-17s %s\n", label, f.Check, terminal.Line(f.Seen))
		if f.Mend != "" {
			text += fmt.Sprintf("      %-17s -> %s\n", "", terminal.Line(a.repeatFlags(f.Mend)))
		}
		if _, err := fmt.Fprint(a.streams.Out, text); err != nil {
			return readerGone(err)
		}
	}
	return nil
}
