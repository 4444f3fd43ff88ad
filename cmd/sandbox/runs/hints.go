package runs

import (
	"cmp"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// surroundings are what hints are made of, besides the result.
type surroundings struct {
	// beside is the host path of a local path beside the script, and inInput whether the
	// directory of --input has it.
	beside  func(name string) (path string, ok bool)
	inInput func(name string) bool
	// imageWith is an image of the catalog, other than the run's, that has one of these packages;
	// empty if none is known.
	imageWith func(packages []string) string
	// linkOut is the first symbolic link on a path below a directory of the host that leads out of
	// the directory; empty if there is none.
	linkOut func(dir, below string) (link, target string)
	// begin is the beginning of a file of the host; empty if it cannot be read.
	begin func(path string) []byte
}

// Failures that the last lines of stderr show.
var (
	noModule    = pattern(`(?m)^ModuleNotFoundError: No module named '([A-Za-z0-9_.]{1,100})'`)
	noFile      = pattern(`(?m)^FileNotFoundError: \[Errno 2\] No such file or directory: '([^'\n]{1,255})'`)
	notWritable = pattern(`(?m)^(?:PermissionError: \[Errno 13\] Permission denied|OSError: \[Errno 30\] Read-only file system): '([^'\n]{1,255})'`)
	noSpace     = pattern(`(?m)^OSError: \[Errno 28\] No space left on device(?:: '([^'\n]{1,255})')?`)
	inShared    = pattern(`/dev/shm/|SemLock`)
	noShared    = pattern(`\bBus error\b|unable to allocate shared memory|out of shared memory`)
	crossDevice = pattern(`(?i)cross-device link(?:[^\n]{1,300}? -> '([^'\n]{1,255})')?`)
	busy        = pattern(`(?m)^(?:OSError: \[Errno 16\] Device or resource busy: '([^'\n]{1,255})'|rm: cannot remove '([^'\n]{1,255})': Device or resource busy$)`)
	noInput     = pattern(`(?m)^EOFError: EOF when reading a line`)
	noEnv       = pattern(`(?m)^(?:/\S{1,100}/)?env: (?:can't execute )?['‘]?([\w./+-]{1,100})(\\r|\r)?['’]?: No such file or directory$`)
	noCommand   = pattern(`(?m)^\S{1,100}: (?:line )?\d{1,9}: (?:\S{1,100}: )?([\w./+-]{1,100})(\^M|\r)?: (?:(?:command )?not found|bad interpreter: No such file or directory|cannot execute: required file not found)$`)
	marked      = pattern(`(?m)^(\S{1,100}): (?:line )?1: \x{feff}#!`)
	noNetwork   = pattern(`Temporary failure in name resolution|Name or service not known|Network is unreachable|Could not resolve host|Failed to resolve`)
	noGPU       = pattern(`No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device|CUDA_ERROR_NO_DEVICE|torch\.cuda\.is_available\(\) is False`)
)

func pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// mostRead is how much of the end of stderr is read for hints.
const mostRead = 16 << 10

// hints explain the failures that beginners meet first, and what to do about them. They guess from
// what the program printed, so they are for people only. The lines are harmless for a terminal.
func hints(res *result.Result, req sandbox.Request, s surroundings) []string {
	var all []string
	switch {
	case !res.IsError:
		return nil
	case res.Status == result.StatusStartFailed:
		all = append(all, startHint(res, req, s))
	case res.Status == result.StatusSignaled:
		all = append(all, roomHint("", res, req))
	case res.Status == result.StatusExited:
		all = printed(res, req, s)
	}
	all = slices.DeleteFunc(all, func(line string) bool { return line == "" })
	for i, line := range all {
		all[i] = "hint: " + terminal.Line(line)
	}
	return all
}

// printed are the hints that follow from the end of stderr.
func printed(res *result.Result, req sandbox.Request, s surroundings) (all []string) {
	tail := res.Stderr[max(0, len(res.Stderr)-mostRead):]
	if m := last(noModule(), tail); m != nil {
		all = append(all, moduleHint(m[1], req, s))
	}
	executes := strings.Contains(tail, "in _execute_child") // of Python's subprocess
	if m := last(noFile(), tail); m != nil {
		if executes && !strings.Contains(m[1], "/") {
			all = append(all, "if "+text.Short(m[1], 100)+" is the directory cwd: it does not exist; if it is a program: "+programHint(m[1], res, req, s))
		} else {
			all = append(all, fileHint(m[1], req, s))
		}
	}
	mark := last(marked(), tail) // the shell then executes a script of another language
	for _, missing := range []*regexp.Regexp{noEnv(), noCommand()} {
		switch m := last(missing, tail); {
		case m == nil || mark != nil:
		case m[2] != "":
			all = append(all, returnHint("a line with "+m[1], "FILE"))
		default:
			all = append(all, programHint(m[1], res, req, s))
		}
	}
	if mark != nil {
		all = append(all, markHint(mark[1], hostFile(mark[1], req)))
	}
	switch m := last(notWritable(), tail); {
	case m == nil:
	case executes:
		all = append(all, text.Short(m[1], 100)+" cannot be executed: start it with its interpreter, such as sh "+text.ShellWord(m[1])+", or give the file the x permission (chmod +x)")
	default:
		all = append(all, writeHint(m[1]))
	}
	all = append(all, roomHint(tail, res, req))
	if m := last(crossDevice(), tail); m != nil {
		all = append(all, crossHint(m[1]))
	}
	if m := last(busy(), tail); m != nil {
		all = append(all, busyHint(m[1]+m[2], req))
	}
	if noInput().MatchString(tail) {
		all = append(all, inputHint(req))
	}
	if req.Egress == nil && cmp.Or(req.Network, "none") == "none" && noNetwork().MatchString(tail) {
		all = append(all, "this run has no network: permit a host with --allow-host HOST")
	}
	if req.GPUs == "" && noGPU().MatchString(tail) {
		all = append(all, "this run has no GPU: --gpus 1, or --gpus all")
	}
	return all
}

// inContainer is the absolute path of a name that a program uses, as if it stayed in its working directory,
// behind the aliases of the run.
func inContainer(name string, req sandbox.Request) string {
	full := absoluteIn(name)
	for _, a := range req.Aliases {
		if alias := absoluteIn(a.Name); spec.Within(full, alias) {
			return path.Join(spec.WorkDir, a.Target, spec.Rel(full, alias))
		}
	}
	return full
}

func absoluteIn(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(spec.WorkDir, name)
}

// behind is the source on the host of what the container has at a path, and the path below it; both are
// empty if neither the input nor a mount is there.
func behind(full string, req sandbox.Request) (source, below string) {
	for _, m := range append([]sandbox.Mount{{Source: req.Input, Target: spec.InputDir}}, req.Mounts...) {
		if target := absoluteIn(m.Target); m.Source != "" && spec.Within(full, target) {
			return m.Source, spec.Rel(full, target)
		}
	}
	return "", ""
}

// mark is the byte order mark.
const mark = "\ufeff"

// hostFile is the file on the host that the container has at a path; FILE if it is not known.
func hostFile(name string, req sandbox.Request) string {
	if source, below := behind(inContainer(name, req), req); source != "" {
		return filepath.Join(source, below)
	}
	return "FILE"
}

// markHint says how a script loses its byte order mark.
func markHint(name, file string) string {
	return text.Short(name, 100) + " begins with a byte order mark, which hides its #!: remove it with: tail -c +4 " + text.ShellWord(file) + " > NEW"
}

// returnHint says how a script loses the carriage returns at the ends of its lines.
func returnHint(what, file string) string {
	return what + " ends with a carriage return: remove all carriage returns of the file with: tr -d '\\r' < " + text.ShellWord(file) + " > NEW"
}

// startHint explains a command that could not be executed.
func startHint(res *result.Result, req sandbox.Request, s surroundings) string {
	switch {
	case res.ExitCode != cli.ExitNotFound:
		return ""
	case len(req.Interpreter) > 0:
		return programHint(req.Interpreter[0], res, req, s)
	case len(req.Command) > 0:
		return programHint(req.Command[0], res, req, s)
	}
	return programHint("python3", res, req, s)
}

// systemDirs hold the programs of an image.
var systemDirs = []string{"/bin", "/sbin", "/usr", "/opt"}

// programHint explains a command that does not exist, or that is a script whose interpreter does not exist.
func programHint(name string, res *result.Result, req sandbox.Request, s surroundings) string {
	if source, below := behind(inContainer(name, req), req); source != "" && strings.Contains(name, "/") {
		begin := s.begin(filepath.Join(source, below))
		interpreter := interpreterIn(begin)
		first, _, _ := strings.Cut(string(begin), "\n")
		switch {
		case interpreter == nil:
			return ""
		case strings.HasSuffix(first, "\r"):
			return returnHint("the first line of "+text.Short(name, 100), filepath.Join(source, below))
		}
		name = interpreter[0]
	}
	shown, program := text.Short(name, 100), path.Base(name)
	if strings.Contains(name, "/") && !slices.ContainsFunc(systemDirs, func(dir string) bool { return spec.Below(path.Clean(name), dir) }) {
		return shown + " is not there: a run has the files of its image, the script, and what --input and --mount show"
	}
	return shown + " is not in the image " + res.Image.Name + ": name an image that has it with --image, or build one: sandbox image build NAME --debian " +
		text.ShellWord(cmp.Or(debianPackages[program], program))
}

// debianPackages are the packages of programs that have another name.
var debianPackages = map[string]string{
	"Rscript": "r-base-core",
	"R":       "r-base-core",
	"c++":     "g++",
	"cc":      "gcc",
	"go":      "golang-go",
	"java":    "default-jre-headless",
	"javac":   "default-jdk-headless",
	"node":    "nodejs",
	"php":     "php-cli",
	"pip":     "python3-pip",
	"pip3":    "python3-pip",
}

// last is the last match, with its groups.
func last(re *regexp.Regexp, s string) []string {
	all := re.FindAllStringSubmatch(s, -1)
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// moduleHint explains a module that was not found: it is beside the script, in another image, or
// in none.
func moduleHint(module string, req sandbox.Request, s surroundings) string {
	top, _, _ := strings.Cut(module, ".")
	for _, name := range []string{top + ".py", top} {
		if found, ok := s.beside(name); ok && req.Script != "" {
			return name + " is beside the script, and only the script is copied: add --mount " + mountOf(found, name)
		}
		if s.inInput(name) {
			return name + " is in ./input, where Python does not look for modules: add --alias " + text.ShellWord(name+"=input/"+name)
		}
	}
	packages := packagesOf(top)
	if image := s.imageWith(packages); image != "" {
		return top + " is in the image " + image + ": --image " + image
	}
	return "no image of the catalog is known to have " + packages[0] + ": build one with: sandbox image build NAME --pip requirements.txt"
}

// mountOf is the value of --mount that shows a host path in the working directory.
func mountOf(found, name string) string { return text.ShellWord(found + ":" + name) }

// fileHint explains a file that was not found, if there is one of its name.
func fileHint(name string, req sandbox.Request, s surroundings) string {
	if source, below := behind(inContainer(name, req), req); source != "" {
		if link, target := s.linkOut(source, below); link != "" {
			return text.Short(path.Join(source, link), 100) + " is a symbolic link to " + text.Short(target, 100) + ", which the program does not have: copy the directory with the files behind its links: cp -rL " + text.ShellWord(source) + " NEW, and give NEW in its place"
		}
	}
	local := strings.TrimPrefix(name, "./")
	if !filepath.IsLocal(local) || path.Clean(local) != local {
		return ""
	}
	shown := text.Short(local, 100)
	if s.inInput(local) {
		return shown + " is in ./input: open input/" + shown + ", or add --alias " + text.ShellWord(local+"=input/"+local)
	}
	if found, ok := s.beside(local); ok && req.Script != "" {
		if inside, ok := strings.CutPrefix(local, "input/"); ok && req.Input == "" {
			dir := strings.TrimSuffix(strings.TrimSuffix(found, inside), "/")
			return "this run has no input directory: add --input " + text.ShellWord(dir)
		}
		return shown + " is beside the script, and only the script is copied: add --mount " + mountOf(found, local) + ", or give the directory with --input and open input/" + shown
	}
	return ""
}

// writeHint says where a program can write.
func writeHint(name string) string {
	if spec.Within(name, spec.InputDir) || name == "input" || strings.HasPrefix(strings.TrimPrefix(name, "./"), "input/") {
		return "./input is read-only: write to ./final, which is kept, or to /tmp"
	}
	return "a program can write only to ./final, which is kept, to its working directory and to /tmp"
}

// roomHint explains that a file system is full, if the program says so or a bus error ended it.
func roomHint(tail string, res *result.Result, req sandbox.Request) string {
	m := last(noSpace(), tail)
	shared := noShared().MatchString(tail) || result.SignalName(res.Signal) == "SIGBUS"
	switch {
	case m != nil && m[1] != "" && !spec.Within(m[1], sharedDir):
		return spaceHint(m[1], req)
	case shared, m != nil && (m[1] != "" || inShared().MatchString(tail)):
		return "shared memory is in " + sharedDir + ", which has " + text.Size(res.Enforced.ShmBytes) + " here: give more with --shm-size; it counts as memory, see --memory"
	case m != nil:
		return spaceHint("", req)
	}
	return ""
}

// sharedDir is where shared memory is.
const sharedDir = "/dev/shm"

// crossHint explains a rename from one file system to another; to is empty if the program did not say it.
func crossHint(to string) string {
	dir := spec.FinalDir
	if to != "" {
		dir = path.Dir(absoluteIn(to))
	}
	if rel := spec.Rel(dir, spec.WorkDir); rel != dir && rel != "." {
		dir = "./" + rel
	}
	return "./final, the working directory, /tmp and " + sharedDir + " are different file systems, and a rename cannot lead from one to another: use shutil.move, or write directly to " + text.Short(dir, 100)
}

// busyHint explains a directory that cannot be removed or renamed because it is mounted.
func busyHint(name string, req sandbox.Request) string {
	full, shown := inContainer(name, req), text.Short(name, 100)
	switch {
	case full == spec.FinalDir:
		return "./final is mounted, so it cannot be removed or renamed: remove what is in it, or keep it: it is empty when the program starts"
	case full == spec.WorkDir || full == spec.TmpDir || full == sharedDir:
		return shown + " is mounted, so it cannot be removed or renamed: remove what is in it"
	}
	if source, below := behind(full, req); full == spec.InputDir || source != "" && below == "." {
		return shown + " is mounted read-only, so it cannot be removed or renamed: write to ./final or /tmp"
	}
	return ""
}

// inputHint says how a program gets more to read from stdin.
func inputHint(req sandbox.Request) string {
	switch {
	case req.Stdin:
		return "stdin has ended: the program reads more lines than it got"
	case req.ScriptFrom == "-":
		return "stdin was the script: save the script as a file, and pass on stdin with --interactive"
	}
	return "the program has no stdin unless it is passed on: add --interactive, and for a file also < FILE"
}

// spaceHint names the limit that was reached, or a directory that has no room by design.
func spaceHint(name string, req sandbox.Request) string {
	for _, a := range req.Aliases {
		if dir := path.Dir(a.Name); path.IsAbs(a.Name) && spec.Within(name, dir) && !spec.Within(name, a.Name) {
			return dir + " has room for aliases only: write to ./final"
		}
	}
	switch {
	case name == "":
		return "the working directory and /tmp are bounded: --scratch-size and --tmp-size; ./final and " + sharedDir + " are, too: --disk and --shm-size"
	case spec.Within(name, spec.TmpDir):
		return "/tmp is bounded: --tmp-size"
	case spec.Within(name, spec.FinalDir) || strings.HasPrefix(strings.TrimPrefix(name, "./"), "final/"):
		return "./final is bounded: --disk"
	}
	return "the working directory is bounded: --scratch-size; ./final has more room"
}

// packageNames are the packages of modules that have another name.
var packageNames = map[string][]string{
	"attr":     {"attrs"},
	"bs4":      {"beautifulsoup4"},
	"Crypto":   {"pycryptodome"},
	"cv2":      {"opencv-python-headless", "opencv-python", "opencv"},
	"dateutil": {"python-dateutil"},
	"dotenv":   {"python-dotenv"},
	"fitz":     {"pymupdf"},
	"git":      {"gitpython"},
	"PIL":      {"pillow", "pil"},
	"skimage":  {"scikit-image", "skimage"},
	"sklearn":  {"scikit-learn", "sklearn"},
	"torch":    {"torch", "pytorch"},
	"yaml":     {"pyyaml", "yaml"},
}

// packagesOf returns the names of the packages that may bring a module; the first one is pip's.
func packagesOf(module string) []string {
	if names, ok := packageNames[module]; ok {
		return names
	}
	return []string{strings.ToLower(strings.ReplaceAll(module, "_", "-"))}
}
