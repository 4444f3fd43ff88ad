package browse

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// again says how a run can be done again with `sandbox run`.
type again struct {
	// Args are the arguments of `sandbox`; empty if Missing.
	Args []string
	// Missing is what a record does not have, or the command line cannot say.
	Missing string
}

// Command is the command line for a shell.
func (a again) Command() string {
	words := []string{"sandbox"}
	for _, arg := range a.Args {
		words = append(words, text.ShellWord(arg))
	}
	return strings.Join(words, " ")
}

// againOf makes the command line of a run from its record. It runs the copy of the script, which is
// the one that ran, with the same image and limits. The outputs stay in the record of the new run.
func againOf(each record.Record) again {
	job, class := each.Spec.Job, each.Spec.Class
	for missing, there := range map[string]bool{
		"a record without a plan":       len(job.Command) == 0,
		"mounts":                        len(job.Mounts) > 0,
		"working copies of directories": len(job.Trees) > 0,
		"further names of its files": len(job.Aliases) > 0 || slices.ContainsFunc(class.Binds, func(b spec.Bind) bool {
			return b.Role == spec.RoleInput && b.Target != spec.InputDir
		}),
		"the values of secrets":             len(job.Secrets) > 0,
		"hosts that it may reach":           job.Egress != nil,
		"observation":                       job.Observe != nil,
		"modules that were imported before": class.Preload != nil,
		"input on stdin":                    job.Stdin,
		"a volume as its input":             slices.ContainsFunc(class.Binds, func(b spec.Bind) bool { return b.Claim != nil }),
		"a soft time limit":                 job.SoftTimeoutSeconds > 0,
		"a ban on new processes":            job.NoFork,
	} {
		if there {
			return again{Missing: missing}
		}
	}
	args := []string{"run", "--detach"}
	flag := func(name, value string) {
		if value != "" && value != "0" && value != "0B" { // what is not bounded has no flag
			args = append(args, "--"+name, value)
		}
	}
	flag("name", job.Name)
	for _, name := range slices.Sorted(maps.Keys(job.Labels)) {
		if !strings.HasPrefix(name, "trial.") && !strings.HasPrefix(name, "evalbox.") {
			flag("label", name+"="+job.Labels[name])
		}
	}
	flag("image", class.Image.Reference)
	flag("runtime", class.Runtime)
	flag("timeout", strconv.FormatFloat(job.TimeoutSeconds, 'g', -1, 64)+"s")
	for _, rule := range job.StopWhen {
		flag("stop-when", rule)
	}
	flag("memory", policy.Size(class.Cgroup.MemoryBytes).String())
	flag("cpus", strconv.FormatFloat(float64(class.Cgroup.NanoCPUs)/1e9, 'g', -1, 64))
	flag("pids-limit", strconv.FormatInt(class.Cgroup.PIDs, 10))
	flag("disk", policy.Size(job.DiskBytes).String())
	flag("output-limit", policy.Size(job.OutputLimitBytes).String())
	if gpus := class.GPUs; gpus.All {
		flag("gpus", "all")
	} else if gpus.Count > 0 {
		flag("gpus", strconv.Itoa(gpus.Count))
	}
	for _, pair := range job.Env {
		flag("env", pair)
	}
	flag("input", job.Input)
	if job.Script == "" {
		return again{Args: append(append(args, "--"), job.Command...)}
	}
	// Its own arguments come after the path that it has in the container.
	at := slices.IndexFunc(class.Binds, func(b spec.Bind) bool { return b.Role == spec.RoleProgram })
	if at < 0 {
		return again{Missing: "the place of its script"}
	}
	script := slices.Index(job.Command, class.Binds[at].Target)
	if script < 0 {
		return again{Missing: "the place of its script"}
	}
	return again{Args: append(append(args, each.ProgramPath()), job.Command[script+1:]...)}
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) {
	each, ok := s.load(w, r)
	if !ok {
		return
	}
	if each.State == record.Unreadable && s.Store.IsOpen(each.ID) { // nobody reads the request, and its program may run
		refuse(w, http.StatusConflict, "The record of the run is damaged. End the run with: sandbox rm "+each.ID)
		return
	}
	if each.State == record.Finished || each.State == record.Unreadable {
		refuse(w, http.StatusConflict, "The run has ended already.")
		return
	}
	if err := s.Store.RequestStop(each.ID, false); err != nil {
		refuse(w, http.StatusInternalServerError, "The run cannot be stopped: "+terminal.Line(err.Error()))
		return
	}
	http.Redirect(w, r, "/runs/"+each.ID, http.StatusSeeOther)
}

func (s *Server) rerun(w http.ResponseWriter, r *http.Request) {
	each, ok := s.load(w, r)
	if !ok {
		return
	}
	again := againOf(each)
	if again.Missing != "" {
		refuse(w, http.StatusConflict, "The run cannot be started again from its record: it has "+again.Missing+".")
		return
	}
	id, err := s.Control.Rerun(r.Context(), again.Args)
	if err == nil {
		err = policy.CheckName("id", id)
	}
	if err != nil {
		refuse(w, http.StatusBadGateway, "The run cannot be started: "+terminal.Line(err.Error()))
		return
	}
	http.Redirect(w, r, "/runs/"+id, http.StatusSeeOther)
}
