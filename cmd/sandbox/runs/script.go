package runs

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/hostpath"
)

// stdinScript is the name of a script that was read from stdin.
const stdinScript = "stdin.py"

// scriptOfStdin copies a script from stdin into a file of its own. clean removes it; it is never nil.
func scriptOfStdin(s settings.Settings, in io.Reader) (path string, clean func(), err error) {
	text, err := io.ReadAll(io.LimitReader(in, hostpath.MaxScript+1))
	if err != nil {
		return "", func() {}, fmt.Errorf("reading the script from stdin: %w", err)
	}
	if len(text) == 0 {
		return "", func() {}, usagef("run: the script on stdin is empty")
	}
	store, err := s.Store()
	if err != nil {
		return "", func() {}, err
	}
	dir, remove, err := store.Temp("stdin")
	if err != nil {
		return "", func() {}, fmt.Errorf("keeping the script from stdin: %w", err)
	}
	clean = func() { _ = remove() } // a later sweep removes the rest
	path = filepath.Join(dir, stdinScript)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", clean, fmt.Errorf("keeping the script from stdin: %w", err)
	}
	return path, clean, nil
}

// mostShebang is the length of a line #! that the kernel reads, with its newline.
const mostShebang = 256

// interpreterOf reads the interpreter of a script, see interpreterIn.
func interpreterOf(path string) []string { return interpreterIn(head(path, mostShebang)) }

// interpreterIn reads the interpreter of a script from its first line, as the kernel does: a path and at
// most one argument. It is nil for any other file. A command that env only looks up is looked up in the
// image all the same, so env is left out.
func interpreterIn(begin []byte) []string {
	line, _, ok := bytes.Cut(begin, []byte("\n"))
	words, isScript := strings.CutPrefix(string(line), "#!")
	interpreter, argument, _ := strings.Cut(strings.Trim(words, " \t\r"), " ")
	argument = strings.TrimSpace(argument)
	switch {
	case !ok || !isScript || interpreter == "":
		return nil
	case argument == "":
		return []string{interpreter}
	case filepath.Base(interpreter) == "env" && !strings.ContainsAny(argument, " \t=") && argument[0] != '-':
		return []string{argument}
	}
	return []string{interpreter, argument}
}

// head returns the first bytes of a regular file, at most n; nothing if it cannot be read.
func head(path string, n int64) []byte {
	file, err := fsx.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text, _ := io.ReadAll(io.LimitReader(file, n)) // the run reports the error
	return text
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// nearScript is a script whose name is near to one that does not exist; empty if there is none.
func nearScript(path string) string {
	if _, err := os.Lstat(path); path == "" || err == nil {
		return ""
	}
	dir, name := filepath.Split(path)
	folder, err := os.Open(cmp.Or(dir, "."))
	if err != nil {
		return ""
	}
	defer folder.Close()
	entries, _ := folder.Readdirnames(1000) // an error means fewer names
	var scripts []string
	for _, entry := range entries {
		if filepath.Ext(entry) == filepath.Ext(name) {
			scripts = append(scripts, entry)
		}
	}
	if near := settings.Nearest(name, scripts); near != "" {
		return dir + near
	}
	return ""
}

// mostScanned is how much of a script is searched for the name of a flag.
const mostScanned = 1 << 20

// misplaced is the first argument of a script that is spelled like a flag of the command; empty if there is
// none, if the caller has written --, or if the script mentions that flag itself.
func (f *runFlags) misplaced(req sandbox.Request) string {
	if req.Script == "" || f.dash >= 0 || f.known == nil {
		return ""
	}
	for _, arg := range req.Args {
		if arg == "--" {
			break
		}
		word, _, _ := strings.Cut(arg, "=")
		if name, ok := strings.CutPrefix(word, "--"); ok && name != "" && f.known(name) && !bytes.Contains(head(req.Script, mostScanned), []byte(name)) {
			return word
		}
	}
	return ""
}
