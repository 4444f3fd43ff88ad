package runs

import (
	"cmp"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

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
}

// Failures that the last lines of stderr show.
var (
	noModule    = pattern(`(?m)^ModuleNotFoundError: No module named '([A-Za-z0-9_.]{1,100})'`)
	noFile      = pattern(`(?m)^FileNotFoundError: \[Errno 2\] No such file or directory: '([^'\n]{1,255})'`)
	notWritable = pattern(`(?m)^(?:PermissionError: \[Errno 13\] Permission denied|OSError: \[Errno 30\] Read-only file system): '([^'\n]{1,255})'`)
	noSpace     = pattern(`(?m)^OSError: \[Errno 28\] No space left on device(?:: '([^'\n]{1,255})')?`)
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
	if res.Status != result.StatusExited || !res.IsError {
		return nil
	}
	tail := res.Stderr[max(0, len(res.Stderr)-mostRead):]
	var all []string
	if m := last(noModule(), tail); m != nil {
		all = append(all, moduleHint(m[1], req, s))
	}
	if m := last(noFile(), tail); m != nil {
		all = append(all, fileHint(m[1], req, s))
	}
	if m := last(notWritable(), tail); m != nil {
		all = append(all, writeHint(m[1]))
	}
	if m := last(noSpace(), tail); m != nil {
		all = append(all, spaceHint(m[1], req))
	}
	if req.Egress == nil && cmp.Or(req.Network, "none") == "none" && noNetwork().MatchString(tail) {
		all = append(all, "this run has no network: permit a host with --allow-host HOST")
	}
	if req.GPUs == "" && noGPU().MatchString(tail) {
		all = append(all, "this run has no GPU: --gpus 1, or --gpus all")
	}
	all = slices.DeleteFunc(all, func(line string) bool { return line == "" })
	for i, line := range all {
		all[i] = "hint: " + terminal.Line(line)
	}
	return all
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

// spaceHint names the limit that was reached, or a directory that has no room by design.
func spaceHint(name string, req sandbox.Request) string {
	for _, a := range req.Aliases {
		if dir := path.Dir(a.Name); path.IsAbs(a.Name) && spec.Within(name, dir) && !spec.Within(name, a.Name) {
			return dir + " has room for aliases only: write to ./final"
		}
	}
	switch {
	case name == "":
		return "the working directory and /tmp are bounded: --scratch-size and --tmp-size; ./final is, too: --disk"
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
