package probe

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// programs has a Python file for each batch of questions.
//
//go:embed programs/*.py
var programs embed.FS

// Question is one function of a batch file, with the answers that it must give.
type Question struct {
	Group, Name string
	// Want is the answer; text between slashes is a regular expression for the whole
	// answer. Under has the answers on some machines, by a trait; the first trait that a
	// machine has decides.
	Want  string
	Under []TraitAnswer
}

// TraitAnswer is the answer on the machines with one trait, see [Machine.Traits].
type TraitAnswer struct{ Trait, Want string }

// want returns the answer on a machine.
func (q Question) want(m Machine) string {
	traits := m.Traits()
	for _, u := range q.Under {
		if traits[u.Trait] {
			return u.Want
		}
	}
	return q.Want
}

// Batch is a file of questions that one container answers.
type Batch struct {
	Group     string
	Questions []Question
	// Python is the whole program.
	Python string
}

// Batches returns all batches. The order of groups and questions is fixed.
func Batches() []Batch {
	var all []Batch
	for _, group := range []string{"confinement", "comfort", "numbers"} {
		b, err := NewBatch(group, read(group+".py"))
		if err != nil {
			panic(err) // the files are embedded, and a test parses them
		}
		all = append(all, b)
	}
	return all
}

// NewBatch makes a batch of a Python file. An expectation is a comment before a function
// without arguments: "#= ANSWER", or "#=TRAIT ANSWER" for the machines with a trait. A
// function without one is a helper. The functions of programs/driver.py are there as well.
func NewBatch(group, text string) (Batch, error) {
	questions, err := parse(group, text)
	if err != nil {
		return Batch{}, err
	}
	names := make([]string, len(questions))
	for i, q := range questions {
		names[i] = q.Name
	}
	return Batch{Group: group, Questions: questions,
		Python: fmt.Sprintf("%s\nPROGRAM = os.path.abspath(__file__)\n%s\n\nanswer_all(%q.split())\n", read("driver.py"), text, strings.Join(names, " "))}, nil
}

func read(name string) string {
	text, err := programs.ReadFile("programs/" + name)
	if err != nil {
		panic(err) // embedded
	}
	return string(text)
}

var (
	wantLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^#=([a-z0-9]*) (.+)$`) })
	defLine  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^def ([a-z0-9_]+)\(\):$`) })
)

// parse reads the questions of a batch file.
func parse(group, text string) (all []Question, err error) {
	var q Question
	for n, line := range strings.Split(text, "\n") {
		if m := wantLine().FindStringSubmatch(line); m != nil {
			if m[1] == "" {
				if q.Want != "" {
					return nil, fmt.Errorf("%s.py:%d: a second answer", group, n+1)
				}
				q.Want = m[2]
			} else {
				q.Under = append(q.Under, TraitAnswer{m[1], m[2]})
			}
			continue
		}
		if strings.HasPrefix(line, "#=") {
			return nil, fmt.Errorf("%s.py:%d: want \"#= ANSWER\" or \"#=TRAIT ANSWER\"", group, n+1)
		}
		if m := defLine().FindStringSubmatch(line); m != nil && q.Want != "" {
			q.Group, q.Name = group, m[1]
			all = append(all, q)
			q = Question{}
			continue
		}
		if q.Want != "" && line != "" && !strings.HasPrefix(line, "#") {
			return nil, fmt.Errorf("%s.py:%d: an answer without a function", group, n+1)
		}
	}
	return all, nil
}

// answers reads the answers of a batch from its stdout.
func answers(stdout string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(stdout) {
		if rest, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "ANSWER "); ok {
			name, answer, _ := strings.Cut(rest, " ")
			all[name] = answer
		}
	}
	return all
}
