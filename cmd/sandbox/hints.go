package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

// hints say what to try about an error that may join several, without repetition.
func hints(err error) []string {
	var all []string
	for _, e := range parts(err) {
		if text := hint(e); text != "" && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// parts takes apart what errors.Join joined. An error that merely wraps two, as a
// class and a cause, stays whole.
func parts(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || hint(err) != "" && !isJoin(err) {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, parts(e)...)
	}
	return all
}

// isJoin says that an error is nothing but its parts.
func isJoin(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	return ok && err.Error() == errors.Join(joined.Unwrap()...).Error()
}

// hint is what to try about one error; empty for no idea. An error that knows
// itself what helps has a method Hint.
func hint(err error) string {
	var knows interface{ Hint() string }
	var field *policy.FieldError
	var path *sandbox.PathError
	var busy *gpu.BusyError
	switch {
	case errors.As(err, &knows):
		return knows.Hint()
	case errors.Is(err, sandbox.ErrEnginePermission):
		return "add your user to the docker group (which makes it root on this machine), use sudo, or name another engine with --host or --context"
	case errors.Is(err, sandbox.ErrEngineUnavailable):
		return unreachableHint(err.Error())
	case errors.Is(err, sandbox.ErrUnenforceable):
		return "see what is missing with: sandbox doctor"
	case errors.Is(err, record.ErrNoSpace) && strings.HasPrefix(err.Error(), "the engine's disk"):
		return "see what takes the space of the engine with: docker system df"
	case errors.Is(err, record.ErrNoSpace):
		return "delete old records with: sandbox rm; or choose another disk with --state-dir"
	case errors.Is(err, record.ErrNoRecord):
		return "see all runs with: sandbox ls"
	case errors.As(err, &busy):
		return busyHint(busy)
	case strings.HasPrefix(err.Error(), "leases of GPUs in "):
		return "make that folder one that you may write to, or name another with gpu_dir in the settings or SANDBOX_GPU_DIR"
	case errors.Is(err, sandbox.ErrBusy):
		return "see what runs with: sandbox ps"
	case errors.As(err, &field):
		return fieldErrorHint(field)
	case errors.As(err, &path):
		return fieldHint(path.Field)
	case errors.Is(err, sandbox.ErrNameTaken):
		return "choose another --id, or see whose it is with: sandbox ps"
	}
	return ""
}

// fieldErrorHint is what to try about a field: for some it depends on the rule.
func fieldErrorHint(field *policy.FieldError) string {
	switch {
	case field.Field == "network" && !strings.Contains(field.Rule, "policy"):
		return "leave --network out, or name a network that the engine made: docker network ls"
	case field.Field == "transfer" && strings.Contains(field.Rule, "image"):
		return "choose an image with a shell, such as debian, or an engine that sees the folders of this machine"
	case field.Field == "transfer" && strings.Contains(field.Rule, "must be"):
		return "leave --transfer out: auto finds out which it must be"
	case field.Field == "id" && strings.Contains(field.Rule, "begin so"):
		return "give more of the ID; see all runs with: sandbox ls"
	}
	return fieldHint(field.Field)
}

// busyHint is what to try about GPUs that are not free. Sharing helps only with
// those who share.
func busyHint(busy *gpu.BusyError) string {
	text := "see who has them with: sandbox gpus; wait for them with --gpu-wait 1h"
	if busy.Waited > 0 {
		text = "see who has them with: sandbox gpus; wait longer for them with --gpu-wait"
	}
	if busy.Sharing {
		text += "; or share them with --gpu-share"
	}
	return text
}

// unreachableHint is what to try about an engine that does not answer. Only that
// of the default socket is known to be a service of this machine.
func unreachableHint(text string) string {
	const address = "check the address, of --host, SANDBOX_HOST, DOCKER_HOST or the context"
	switch {
	case strings.Contains(text, "daemon at "+client.DefaultDockerHost+". "):
		return "is the engine running? try: sudo systemctl start docker; or name another with --host, --context or DOCKER_HOST"
	case strings.Contains(text, "daemon at unix://"), strings.Contains(text, "daemon at npipe://"):
		return "nothing answers at that socket: " + address + ", and start its engine"
	case strings.Contains(text, "daemon at "):
		return "nothing answers at that host and port: " + address + ", and that its engine runs and may be reached"
	}
	return "is the engine running? see what is wrong with: sandbox doctor; or name another with --host, --context or DOCKER_HOST"
}

// fieldHints tell what to try about a field of a request that breaks a rule. The
// other fields are limits.
var fieldHints = map[string]string{
	"script":         "give a Python script, or after -- any command of the image",
	"command":        "give a Python script, or after -- any command of the image",
	"args":           "pass long input as a file in the folder of --input",
	"input":          "name a folder with --input; without it ./input is empty",
	"final":          "name a folder of its own with --final; without it the outputs stay in the run's record",
	"state folder":   "choose another with --state-dir",
	"transfer":       "leave --transfer out: the files are then copied to an engine that does not see them",
	"network level":  "permit levels with allow_egress in the user's configuration or SANDBOX_ALLOW_EGRESS; see docs/network.md",
	"allow-host":     "name hosts as example.org, *.example.org, example.org:8443 or 192.0.2.7; see docs/network.md",
	"network":        "permit networks with SANDBOX_ALLOW_NETWORK=true or in the user's configuration",
	"user":           "give numbers other than 0, such as --user 1000:1000, or leave --user out",
	"runtime":        "see what the engine has with: sandbox doctor",
	"gpus":           "see which GPUs there are with: sandbox gpus",
	"gpu_driver":     "leave --gpu-driver out, or see what the engine has with: sandbox doctor",
	"gpu_dir":        "make the folder, or correct SANDBOX_GPU_DIR or gpu_dir in the settings",
	"gpu_wait":       "give a duration, such as --gpu-wait 10m",
	"env":            "leave it out, or let the program set it",
	"label":          "give --label NAME=VALUE",
	"name":           "choose another --name",
	"id":             "see the IDs of all runs with: sandbox ls; a new run needs no --id, one is made of the time",
	"ulimit":         "give --ulimit NAME=SOFT[:HARD], such as nofile=1024",
	"data_dir":       "name in the task file the folder of the data, called input, or the folder that holds it",
	"answers":        "give a folder with --answers, apart from the data of the task",
	"sample":         "give the CSV file with the right header, rows and IDs",
	"submission":     "give the name of a file that the script leaves in ./final",
	"workspace":      "choose another with --workspace",
	"cache":          "give a folder with --cache, which is made if it is missing",
	"grader":         "give a Python script with --grader",
	"working folder": "choose another with --workspace",
	"output":         "give an existing folder for the artifacts of this call alone",
	"config":         "give a file that the tool can read",
	"mount":          "give other files and folders, which a program may be shown",
	"tree":           "give another folder, which a program may have a copy of",
	"axes":           axisHint,
	"axis":           axisHint,
	"seeds":          "give seeds, such as --seeds 1,2,3",
	"sweep":          "see how a sweep is described with: sandbox sweep --help",
	"folder":         "each run has a folder of its own, named after its values and seed",
	"root":           "give the folder of the tool's own files, or leave --root out",
	"executable":     "give a command such as 'python -m tool.cli', quoted as for a shell",
}

const axisHint = "give axes such as --axis brightness=0.8,1.0"

func fieldHint(field string) string {
	if text, ok := fieldHints[field]; ok {
		return text
	}
	return limitsHint
}

const limitsHint = "see the limits, and where they come from, with: sandbox config"
