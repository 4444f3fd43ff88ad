package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A form is a document that evalbox writes or reads, by the name in its field `schema`.
type form struct{ name, meaning, where string }

// sections are all forms, each where a reader looks for it.
var sections = []struct {
	title, intro, column string
	forms                []form
}{
	{"Documents that you write", "", "read by", []form{
		{"adapter/v1", "an [adapter](adapters.md) of a tool", "`adapter`, `exec`"},
		{"approval/v1", "the approval of one execution of a contract", "`exec`; `contract approve` writes it"},
		{"artifacts/v1", "further [artifacts](invoke.md) of a tool", "`invoke`, `sweep` and `artifacts verify` with `--profile`"},
		{"contract/v1", "a [code execution contract](contract.md)", "`exec`, `contract`"},
		{"gate-document/v1", "one gate run, as a job; it has no field `schema`", "[trials](trials.md)"},
		{"images/v1", "an [image catalog](images.md)", "every command, with `--catalog`"},
		{"invoke/v1", "one call of a tool, as a job", "[trials](trials.md)"},
		{"evaluation-job/v1", "one evaluation, as a job", "[trials](trials.md)"},
		{"layouts/v1", "where solutions look for their files; shipped", "`evaluate`, `batch`"},
		{"profiles/v1", "[profiles of limits](contract.md) of contracts", "`exec`, `contract`, with `--profiles`"},
		{"registries/v1", "hosts of package registries; shipped", "runs with `--egress registry`"},
		{"request/v1", "a run as it is requested", "the Go library, the [server for agents](mcp.md)"},
		{"settings/v1", "[settings](settings.md); also the answer of `config`", "every command"},
		{"tools/v1", "a [registry of tools](contract.md)", "`exec`, `contract` and `gate run`, with `--registry`"},
		{"wish/v1", "a [wish](gate.md#the-wish) for a gate", "`gate`"},
		{"wish-lock/v1", "a sealed wish", "`gate run`; `gate seal` writes it"},
	}},
	{"Answers of commands", "With `--json`, a command prints one document on stdout.", "printed by", []form{
		{"adapters/v1", "the adapters that there are", "`adapter list`"},
		{"adopted/v1", "the results of adopted runs", "`adopt`"},
		{"checks/v1", "the problems of scripts", "`check`"},
		{"containers/v1", "the containers of runs", "`ps`"},
		{"doctor/v1", "the findings on a machine", "`doctor`"},
		{"error/v1", "a failure that has no document of its own", "every command"},
		{"evaluation/v1", "the [result of an evaluation](evaluate.md)", "`evaluate`; a line of the results file of `batch`"},
		{"evaluation-plans/v1", "the evaluations that would run", "`evaluate` and `batch` with `--dry-run`"},
		{"evaluations/v1", "a leaderboard", "`batch`, `rank`"},
		{"gate-plan/v1", "the gate that would run", "`gate run --dry-run`"},
		{"gate-verification/v1", "what a check of a gate directory found", "`gate verify`"},
		{"gc/v1", "what was removed, and what stays", "`gc`"},
		{"gc-retention/v1", "the records that were removed by their class", "`gc --retention`"},
		{"gpus/v1", "the GPUs, their holders, and the waiting runs", "`gpus`"},
		{"hashes/v1", "the hashes of files", "`artifacts hash`"},
		{"image/v1", "one image", "`image build`, `ensure`, `pull`, `import`, `inspect`"},
		{"image-list/v1", "the images", "`image list`"},
		{"image-locks/v1", "what changed in the lock", "`image lock`, `unlock`"},
		{"image-prune/v1", "the images that were removed", "`image prune`"},
		{"image-push/v1", "the image that was pushed", "`image push`"},
		{"image-rm/v1", "the images that were removed by name", "`image rm`"},
		{"image-verification/v1", "whether images are the locked ones", "`image verify`"},
		{"invocation/v1", "the [result of a call](invoke.md)", "`invoke`"},
		{"outcome/v1", "the [outcome of a contract](contract.md)", "`exec`; `outcome.json` in a record"},
		{"parsed/v1", "score, error and traceback of output from elsewhere", "`parse`"},
		{"pool/v1", "the state of the [pool](pool.md)", "`pool`"},
		{"prune/v1", "the records that were deleted", "`prune`"},
		{"repetition/v1", "the results of one script that ran several times", "`evaluate --repeat`"},
		{"replay/v1", "what differs in a replay", "`replay`"},
		{"result/v1", "the [result](result.md) of a run", "`run`, `show`, `wait`; `result.json` in a record"},
		{"run-event/v1", "one [event](events.md) of a run", "`run --json-lines`"},
		{"runs/v1", "the records of runs", "`ls`"},
		{"spec/v1", "the plan of a run", "`run --dry-run`; `spec.json` in a record"},
		{"submission/v1", "what a submission has, and its problems", "`submission`"},
		{"sweep-report/v1", "a [sweep](sweep.md)", "`sweep`"},
		{"validations/v1", "the problems of contracts", "`contract validate`"},
		{"verification/v1", "the problems of the artifacts of a tool", "`artifacts verify`"},
		{"version/v1", "the versions of evalbox and of the engine", "`version`"},
	}},
	{"Files of runs, jobs and gates", "[upgrade.md](guides/upgrade.md) says what another version does with them.", "file", []form{
		{"env-snapshot/v1", "the environment of the commands of a gate", "in a gate directory"},
		{"event/v1", "one step of a job", "`jobs/ID/events.jsonl` of a [log of trials](trials.md)"},
		{"gate-outputs/v1", "the files of one command that were kept", "in a gate directory"},
		{"images.lock/v1", "the [image lock](lock.md)", "the file of `--lock`"},
		{"job/v1", "a job of a harness", "`jobs/ID/job.json` of a log of trials"},
		{"journal/v1", "who owns a run, and its container", "`journal.json` in a record"},
		{"metrics/v1", "one [measurement](metrics.md) of a run", "a line of `metrics.jsonl` in a record"},
		{"normalization/v1", "what was changed in a log", "in a gate directory"},
		{"observations/v1", "what the commands of a gate tried", "in a gate directory"},
		{"run-manifest/v1", "what a gate runs", "`RunManifest.json` in a gate directory"},
		{"state/v1", "the version of a state directory", "`state.json` there"},
		{"sweep/v1", "the definition of a sweep", "in the directory of a sweep"},
		{"sweep-run/v1", "how one run of a sweep ended", "in the directory of a sweep"},
		{"tests/v1", "the test cases of a command", "in a gate directory"},
		{"trial/v1", "how a job of a harness ended", "`jobs/ID/result.json` and `index.jsonl` of a log of trials"},
		{"verdict/v1", "the verdict of a gate", "`ExecutionVerdict.json` in a gate directory"},
		{"workspace/v1", "the files that a gate ran on", "in a gate directory"},
	}},
	{"Files for evalbox alone", "Nothing else reads them, and they may change with every version.", "file", []form{
		{"adapter-cache/v1", "adapters that were read", "in the cache directory"},
		{"bench/v1", "a run of the benchmark", "`make bench`"},
		{"gpu-ticket/v1", "one request for GPUs", "in `gpus/` of the state directory"},
		{"tree-memory/v3", "hashes of files that did not change", "in the cache directory"},
	}},
}

// schemasPage is docs/schemas.md.
func schemasPage(repository string) (string, error) {
	schemas, err := schemaFiles(repository)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# Documents and their schemas\n\n" + fmt.Sprintf(generated, "table in hack/reference/schemas.go"))
	b.WriteString(`
Each JSON document and each YAML file of evalbox names its form in the field ` + "`schema`: `evalbox/NAME/vN`" + `. This page lists all forms, for
programs that read or write them. Those with a JSON Schema (draft 2020-12) link to it; ` + "`sandbox contract schema` and `sandbox gate\nschema`" + ` print those that editors need.

- **The version** is the number in the name. It stays while readers that ignore unknown fields can go on. Any other change gets a new
  number, and its reason is in [CHANGELOG.md](../CHANGELOG.md).
- **Programs that read documents** check ` + "`schema`" + ` and ignore fields that they do not know.
- **evalbox itself** refuses unknown keys in the documents that you write, because a limit with a typing error would silently not apply.
  It refuses a form of another version by name.
`)
	for _, section := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n", section.title)
		if section.intro != "" {
			b.WriteString(section.intro + "\n\n")
		}
		fmt.Fprintf(&b, "| schema | document | %s |\n|---|---|---|\n", section.column)
		forms := slices.SortedFunc(slices.Values(section.forms), func(a, b form) int { return cmp.Compare(a.name, b.name) })
		for _, f := range forms {
			name := "`evalbox/" + f.name + "`"
			if file := schemas["evalbox/"+f.name]; file != "" {
				name = "[" + name + "](../" + file + ")"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", name, f.meaning, f.where)
		}
	}
	return b.String(), nil
}

var (
	// declared finds a form where the code names it, and constant where a JSON Schema demands it.
	declared = regexp.MustCompile("[\"`](evalbox/[a-z.-]+/v[0-9]+)[\"`]")
	constant = regexp.MustCompile(`(?:"schema": *\{[^}]*|"\$id": )"(evalbox/[a-z-]+/v[0-9]+)"`)
)

// schemaFiles are the JSON Schemas of a repository, by the form that they describe.
func schemaFiles(repository string) (map[string]string, error) {
	files := map[string]string{}
	err := eachFile(repository, "schema.json", func(name string, text []byte) error {
		found := constant.FindSubmatch(text)
		if found == nil {
			return fmt.Errorf("%s does not say which form it describes", name)
		}
		files[string(found[1])] = name
		return nil
	})
	return files, err
}

// formsInCode are the forms that the code of a repository names, without its tests.
func formsInCode(repository string) ([]string, error) {
	var all []string
	err := eachFile(repository, ".go", func(name string, text []byte) error {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "hack/reference/") {
			return nil
		}
		for _, found := range declared.FindAllSubmatch(text, -1) {
			all = append(all, string(found[1]))
		}
		return nil
	})
	slices.Sort(all)
	return slices.Compact(all), err
}

// eachFile reads the files whose name ends so, without those of tests and of the build.
func eachFile(repository, suffix string, do func(name string, text []byte) error) error {
	return fs.WalkDir(os.DirFS(repository), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "bin" || name != "." && strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case !entry.Type().IsRegular() || !strings.HasSuffix(name, suffix):
			return nil
		}
		text, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			return err
		}
		return do(name, text)
	})
}
