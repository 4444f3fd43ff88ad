package rung

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
)

// Answers of the validator: words, so that nothing takes them for true or 0 (RO-13).
const (
	Valid   = "VALID"
	Invalid = "INVALID"
)

// securityFile is what a scan for security left.
const securityFile = "security_scan.json"

// seedKeys are the keys under which three runs with different seeds have their hashes
// (RO-12).
var seedKeys = []string{"seed_42", "seed_137", "seed_9001"}

// Validation is an answer of the validator with all reasons against it.
type Validation struct {
	// Status is [Valid] or [Invalid].
	Status string   `json:"status"`
	Errors []string `json:"errors"`
}

// validator collects reasons.
type validator struct {
	dir    fs.FS
	errors []string
}

func (v *validator) wrong(format string, args ...any) {
	v.errors = append(v.errors, fmt.Sprintf(format, args...))
}

func (v *validator) answer() Validation {
	if len(v.errors) > 0 {
		return Validation{Status: Invalid, Errors: v.errors}
	}
	return Validation{Status: Valid, Errors: []string{}}
}

// object reads a document; nil if it cannot be one, which is told.
func (v *validator) object(file string) object {
	o, err := readObject(v.dir, file)
	if err != nil {
		v.wrong("%s: %s", file, err)
		return nil
	}
	return o
}

// rung says whether a claimed rung exists.
func (v *validator) rung(rung int) {
	if !Known(rung) {
		v.wrong("%d is no rung; there are %d, %d and %d", rung, Local, Stable, Promotion)
	}
}

// VerifyEvidence checks the three files that a submission with a rung needs: a plan with
// its target and what it changed, tests that succeeded, and the same behaviour hash of all
// three seeds (RO-13).
func VerifyEvidence(dir fs.FS, rung int) Validation {
	v := &validator{dir: dir}
	v.rung(rung)
	if o := v.object(planFile); o != nil {
		v.target(o)
		if family, ok := as[string](o, "task_family"); !ok || family == "" {
			v.wrong("%s: task_family must be a string", planFile)
		}
		if _, ok := as[[]string](o, "files_changed"); !ok {
			v.wrong("%s: files_changed must be a list of names", planFile)
		}
	}
	v.tests(false)
	v.seeds(true)
	return v.answer()
}

// ValidateBundle checks the form of a bundle: a plan with goal, constraints and a rung,
// tests of which at least one passed and none failed, and a hash of each seed. That the
// hashes agree is for [VerifyEvidence] and [VerifyRung].
func ValidateBundle(dir fs.FS) Validation {
	v := &validator{dir: dir}
	if o := v.object(planFile); o != nil {
		v.target(o)
		if goal, ok := as[string](o, "goal"); !ok || goal == "" {
			v.wrong("%s: goal must be a string", planFile)
		}
		_, isList := as[[]json.RawMessage](o, "constraints")
		_, isObject := as[map[string]json.RawMessage](o, "constraints")
		if !isList && !isObject {
			v.wrong("%s: constraints must be a list or an object", planFile)
		}
	}
	v.tests(true)
	v.seeds(false)
	return v.answer()
}

// VerifyRung says whether the evidence supports a rung: for [Local] a plan and tests that
// succeeded, for [Stable] also the same behaviour hash of all three seeds, for [Promotion]
// also a security scan with the status PASS or GREEN (RO-13, resolution 49).
func VerifyRung(dir fs.FS, rung int) Validation {
	v := &validator{dir: dir}
	v.rung(rung)
	v.object(planFile)
	v.tests(false)
	if rung == Stable || rung == Promotion {
		v.seeds(true)
	}
	if rung == Promotion {
		if o := v.object(securityFile); o != nil {
			if status, ok := as[string](o, "status"); !ok || status != "PASS" && status != "GREEN" {
				v.wrong("%s: status must be PASS or GREEN", securityFile)
			}
		}
	}
	return v.answer()
}

func (v *validator) target(plan object) {
	if target, ok := as[int](plan, "rung_target"); !ok || !Known(target) {
		v.wrong("%s: rung_target must be %d, %d or %d", planFile, Local, Stable, Promotion)
	}
}

// tests looks at whether tests succeeded. Numbers of them are looked at where they are,
// and must be there if counted.
func (v *validator) tests(counted bool) {
	o := v.object(testsFile)
	if o == nil {
		return
	}
	command := o.either("test_command", "command")
	if text, ok := as[string](o, command); !ok || text == "" {
		v.wrong("%s: %s must name the command that was run", testsFile, command)
	}
	if name, detail := exitProblem(o); name != "" {
		v.wrong("%s: %s", testsFile, detail)
	}
	for _, number := range []struct {
		names []string
		holds func(int) bool
		rule  string
	}{
		{[]string{"pass_count", "passed"}, func(n int) bool { return n > 0 }, "an integer above 0: without a test there is no pass"},
		{[]string{"fail_count", "failed"}, func(n int) bool { return n == 0 }, "0"},
	} {
		key := o.either(number.names...)
		if _, there := o[key]; !there && !counted {
			continue
		}
		if n, ok := as[int](o, key); !ok || !number.holds(n) {
			v.wrong("%s: %s must be %s", testsFile, key, number.rule)
		}
	}
}

var hexHash = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// seeds looks at the hashes of the three seeds.
func (v *validator) seeds(agree bool) {
	o := v.object(hashFileName)
	if o == nil {
		return
	}
	var hashes []string
	for _, key := range seedKeys {
		hash, ok := as[string](o, key)
		if !ok || !hexHash.MatchString(hash) {
			v.wrong("%s: %s must be a SHA-256 of 64 hexadecimal digits", hashFileName, key)
			continue
		}
		hashes = append(hashes, hash)
	}
	if agree && len(slices.Compact(hashes)) > 1 {
		v.wrong("%s: the seeds do not agree", hashFileName)
	}
}
