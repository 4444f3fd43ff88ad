package testlog

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pytestModule is a module by the names that pytest looks for.
var pytestModule = regexp.MustCompile(`^test_|_test$|^conftest$`)

// pytestID is the ID by which pytest knows a case, such as
// "tests/test_a.py::TestX::test_b[1]". Its report has the path and the classes in one
// name, "tests.test_a.TestX", and the file only in an older form. Classes come last: they
// begin with a capital, or follow a module with the name of a test.
func pytestID(file, class, name string) string {
	if class == "" {
		// A file that could not be collected is a case without a class.
		if file == "" {
			file = strings.ReplaceAll(name, ".", "/") + ".py"
		}
		return file
	}
	words := strings.Split(class, ".")
	module := len(words)
	for module > 1 && capital(words[module-1]) {
		module--
	}
	if !pytestModule.MatchString(words[module-1]) {
		for i := module - 1; i > 0; i-- {
			if pytestModule.MatchString(words[i-1]) {
				module = i
				break
			}
		}
	}
	if file != "" {
		if n := len(strings.Split(strings.TrimSuffix(file, ".py"), "/")); n <= len(words) {
			module = n
		}
	} else {
		file = strings.Join(words[:module], "/") + ".py"
	}
	return strings.Join(append(append([]string{file}, words[module:]...), name), "::")
}

func capital(word string) bool {
	r, _ := utf8.DecodeRuneInString(word)
	return unicode.IsUpper(r)
}
