//go:build linux

package hostile

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/ends"
	"github.com/evalbox/evalbox/sandbox/probe"
)

// A document is something hostile that a person gives to the command line: a workspace for a
// gate, a contract, an archive of an image. The script prepares it with the tools of every
// machine, calls $SANDBOX, and prints the answer. It executes nothing of what it prepares.
type document struct {
	group, name, script, want string
}

func documents() []document {
	const (
		run    = "$SANDBOX gate run --quiet --output out --image debian -- python3 -m unittest test_a >stdout 2>stderr; code=$?\n"
		status = `status=$(sed -n 's/.*"status": "\([A-Z_]*\)".*/\1/p' out/ExecutionVerdict.json | head -n 1)` + "\n"
		tests  = "printf 'import unittest\\nclass T(unittest.TestCase):\\n    def test_one(self): %s\\n' 'self.assertTrue(True)' > work/test_a.py\n"
		exec   = "cp -r root here; $SANDBOX exec -f contract.yaml --root here >stdout 2>stderr; echo $? $(head -n 1 stderr)"
		head   = "cat > contract.yaml <<'END'\nschema: evalbox/contract/v1\ntool_id: TL-010\n"
		end    = "metadata: { requested_by: probe, purpose: probe }\nEND\n"
	)
	return []document{
		{"gates", "a configuration that starts programs", tests + `
cat >> work/.git/config <<END
[core]
	fsmonitor = touch $PWD/ran
	hooksPath = $PWD/hooks
	sshCommand = touch $PWD/ran
[filter "x"]
	clean = touch $PWD/ran
	smudge = touch $PWD/ran
[diff]
	external = touch $PWD/ran
END
echo '* filter=x diff=x' > work/.gitattributes
cd work; ` + strings.ReplaceAll(run, "--output out", "--output ../out") + `cd ..; ls ran 2>/dev/null; echo "ran nothing"`, "ran nothing"},
		{"gates", "a link to a file of the machine", tests + `
echo "canary of the machine" > secret; chmod 600 secret; ln -s "$PWD/secret" work/link
cd work; ` + strings.ReplaceAll(run, "--output out", "--output ../out") + `cd ..; grep -rl "canary of the machine" out; echo none`, "none"},
		{"gates", "a queue in the workspace", tests + `mkfifo work/queue
cd work; ` + strings.ReplaceAll(run, "--output out", "--output ../out") + `cd ..; test -e out && echo judged || sed 1q stderr`, "judged"},
		{"gates", "tests that change the sources", `printf 'import unittest\nclass T(unittest.TestCase):\n    def test_one(self): open("test_a.py", "a").write("#")\n' > work/test_a.py
cp work/test_a.py before; cd work; ` + strings.ReplaceAll(run, "--output out", "--output ../out") + `cd ..; cmp work/test_a.py before && echo unchanged`, "unchanged"},
		{"gates", "a test that ends the runner with success", `printf 'import os\nos._exit(0)\n' > work/test_a.py
cd work; ` + strings.ReplaceAll(strings.ReplaceAll(run, "--output out", "--output ../out"), "python3 -m unittest test_a", "pytest -q") + `cd ..; ` + status + `echo $code $status`, "1 BLOCKED"},
		{"gates", "evidence that was changed", tests + "cd work; " + strings.ReplaceAll(run, "--output out", "--output ../out") + `cd ..; echo more >> out/evidence/run_log.txt
$SANDBOX gate verify out >stdout 2>stderr; echo $?`, "1"},
		{"gates", "a verdict that was changed", `printf 'import unittest\nclass T(unittest.TestCase):\n    def test_one(self): self.fail()\n' > work/test_a.py
cd work; ` + strings.ReplaceAll(run, "--output out", "--output ../out") + `cd ..; sed -i 's/BLOCKED/PASS/; s/GATE_FAILED/PASS/' out/ExecutionVerdict.json
$SANDBOX gate verify out >stdout 2>stderr; echo $code $? $($SANDBOX gate judge out 2>/dev/null)`, "/1 1 .*BLOCKED: UNPINNED_TOOLCHAIN/"},
		{"gates", "evidence that was removed", tests + "cd work; " + strings.ReplaceAll(run, "--output out", "--output ../out") + `cd ..; rm out/evidence/tests.json
$SANDBOX gate verify out >stdout 2>stderr; echo $?`, "1"},
		{"gates", "commands for a terminal", `printf 'import unittest\nclass T(unittest.TestCase):\n    def test_\033[2J(self): pass\n    def test_one(self): print(chr(27) + "[2J" + chr(7)); self.fail(chr(27) + "]0;x")\n' | sed 's/def test_.*2J(self): pass/def test_two(self): pass/' > work/test_a.py
cd work; ` + strings.ReplaceAll(strings.ReplaceAll(run, "--output out", "--output ../out"), "--quiet ", "") + `cd ..; cat work/stdout work/stderr | tr -d -c '\033\007' | wc -c`, "0"},
		{"gates", "a directory of evidence that is a link", tests + `mkdir elsewhere; ln -s "$PWD/elsewhere" out
cd work; ` + strings.ReplaceAll(run, "--output out", "--output ../out") + `cd ..; ls elsewhere | wc -l; echo $code; head -n 1 work/stderr | cut -c1-100`, `/0 125 .*is a link.*/`},

		{"contracts", "a directory above the root", head + "inputs: { command: python3, arguments: [-V], working_directory: ../.. }\n" + end + exec, `/125 .*working_directory "../.." must not have .. as a part/`},
		{"contracts", "a file of the machine", head + "inputs: { command: python3, arguments: [-V], working_directory: ., input_files: [/etc/shadow] }\n" + end + exec, `/125 .*"/etc/shadow" is a system path/`},
		{"contracts", "a link that leads out", "ln -s /etc root/link\n" + head + "inputs: { command: python3, arguments: [-V], working_directory: link }\n" + end + exec, `/125 .*"link" leads to /etc, which is not below the root .*/`},
		{"contracts", "an input that is a link", "ln -s /etc/passwd root/link\n" + head + "inputs: { command: python3, arguments: [-V], working_directory: ., input_files: [link] }\n" + end + exec, `/125 .*"link" leads to /etc/passwd, which is not below the root .*/`},
		{"contracts", "a key that is not known", head + "inputs: { command: python3, arguments: [-V], working_directory: ., privileged: true }\n" + end + exec, `/125 .*unknown key "privileged" in inputs.*/`},
		{"contracts", "a key that stands twice", head + "tool_id: TL-011\ninputs: { command: python3, arguments: [-V], working_directory: . }\n" + end + exec, `/125 .*tool_id is given twice, first in line 2/`},
		{"contracts", "a tool that is not registered", strings.ReplaceAll(head, "TL-010", "TL-999") + "inputs: { command: python3, arguments: [-V], working_directory: . }\n" + end + exec, `/125 .*tool_id "TL-999" is no.? .*/`},
		{"contracts", "references that multiply", head + "x1: &a [1,1,1,1,1,1,1,1,1,1]\nx2: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nx3: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nx4: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\nx5: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nx6: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\nx7: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\nx8: &h [*g,*g,*g,*g,*g,*g,*g,*g,*g,*g]\n" + end + exec, `/125 .*unknown key "x1".*/`},
		{"contracts", "thirty megabytes", "{ printf 'schema: evalbox/contract/v1\\nx: '; head -c 30000000 /dev/zero | tr '\\0' x; } > contract.yaml; " + exec, `125 sandbox: contract.yaml CX-01 has more than 4MiB`},
		{"contracts", "an endless document", "$SANDBOX exec -f /dev/zero --root root >stdout 2>stderr; echo $?", "125"},

		{"images", "not an archive", "head -c 100000 /dev/urandom > x.tar; $SANDBOX image import --lock new.lock x.tar >stdout 2>stderr; echo $?; test -e new.lock || { echo no lock; head -n 1 stderr | cut -c1-90; }", `/125 no lock .*is not a tar archive.*/`},
		{"images", "an archive of other things", "echo x > file; tar cf x.tar file; $SANDBOX image import --lock new.lock x.tar >stdout 2>stderr; echo $?; test -e new.lock || { echo no lock; head -n 1 stderr | cut -c1-90; }", `/125 no lock .*does not begin with evalbox.lock.yaml.*/`},
		{"images", "paths that lead out", `$SANDBOX image lock --lock evalbox.lock.yaml debian >/dev/null 2>&1; echo x > evil
tar cPf x.tar --transform 's,^evil$,../../../../evalbox-evil,' evalbox.lock.yaml evil
$SANDBOX image import --lock new.lock x.tar >stdout 2>stderr; echo $?; test -e new.lock || { echo no lock; head -n 1 stderr | cut -c1-90; }; ls /evalbox-evil ../../../../evalbox-evil 2>/dev/null`, `/125 no lock .*"../../../../evalbox-evil" .type '0'. does not belong to a saved i.*/`},
		{"images", "links in an archive", `$SANDBOX image lock --lock evalbox.lock.yaml debian >/dev/null 2>&1; ln -s /etc/shadow manifest.json
tar cf x.tar evalbox.lock.yaml manifest.json
$SANDBOX image import --lock new.lock x.tar >stdout 2>stderr; echo $?; test -e new.lock || { echo no lock; head -n 1 stderr | cut -c1-90; }`, `/125 no lock .*"manifest.json" .type '2'. does not belong to a saved image.*/`},
		{"images", "a queue in place of an archive", "mkfifo x.tar; { sleep 0.1; echo junk; } > x.tar & $SANDBOX image import --lock new.lock x.tar >stdout 2>stderr; echo $?; test -e new.lock || { echo no lock; head -n 1 stderr | cut -c1-90; }", `/125 no lock .*is not a tar archive.*/`},
		{"images", "an image that is not in the engine", "$SANDBOX run --image evalbox/does-not-exist:1 -- true >stdout 2>stderr; echo $?", "125"},
	}
}

// TestEngineDocuments gives hostile documents to the command line, ../../bin/sandbox unless
// EVALBOX_SANDBOX names another one.
func TestEngineDocuments(t *testing.T) {
	t.Parallel()
	if runtimeName() != "" {
		t.Skip("documents do not depend on the runtime")
	}
	if clusterImage() != "" {
		t.Skip("documents are read before an engine is asked; cmd/sandbox/testdata/script/kubernetes has gates and contracts")
	}
	binary := os.Getenv("EVALBOX_SANDBOX")
	if binary == "" {
		binary = "../../bin/sandbox"
	}
	binary, err := filepath.Abs(binary)
	require.NoError(t, err)
	require.FileExists(t, binary, "make build makes it")
	for _, d := range documents() {
		t.Run(d.group+"/"+d.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			work := filepath.Join(dir, "work")
			repo, err := gogit.PlainInit(work, false)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(work, "first.py"), []byte("x = 1\n"), 0o644))
			tree, err := repo.Worktree()
			require.NoError(t, err)
			_, err = tree.Add("first.py")
			require.NoError(t, err)
			author := &object.Signature{Name: "probe", Email: "probe@example.com", When: time.Unix(0, 0)}
			_, err = tree.Commit("first", &gogit.CommitOptions{Author: author})
			require.NoError(t, err)
			require.NoError(t, os.Mkdir(filepath.Join(dir, "root"), 0o755))
			cmd := exec.CommandContext(t.Context(), "sh", "-c", d.script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "SANDBOX="+binary, "XDG_CONFIG_HOME="+filepath.Join(dir, "xdg"), "XDG_STATE_HOME="+filepath.Join(dir, "state"), "SANDBOX_STATE_DIR="+filepath.Join(dir, "state"))
			out, err := cmd.CombinedOutput()
			got := strings.Join(strings.Fields(string(out)), " ")
			t.Log(got)
			v := probe.Verdict{Group: d.group, Name: d.name}
			if !ends.Fits(d.want, got) {
				v.Differs = append(v.Differs, "the answer is \""+got+"\", not \""+d.want+"\"")
			}
			if err != nil && !ends.Fits(d.want, got) {
				v.Differs = append(v.Differs, err.Error())
			}
			report(t, v)
		})
	}
}
