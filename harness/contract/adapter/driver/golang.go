package driver

import (
	_ "embed" // for the driver
	"encoding/json"
	"strings"
)

//go:embed driver.go.tmpl
var goDriver string

func golang() language {
	exported := `[A-Z][A-Za-z0-9_]*`
	path := newForm(paths, "must be the path of a Go package, such as encoding/json", "C", "unsafe", "main")
	module := path
	module.rule = "must be the path of a Go package or module, such as encoding/json"
	return language{
		packages: module, imports: path,
		functions: newForm(exported+`(?:\.`+exported+`)*`,
			"must be an exported function such as Join, Type.Method or Name(a, b)"),
		parameters:  newForm(word, "must be a Go name"),
		imported:    itself,
		checkValues: valueChecks(anyValue),
		program:     goProgram,
		command:     "go",
		missing:     goSigns(),
	}
}

// goProgram returns a program that the Go of the image compiles. Imports are those of the module
// of the working directory; without a go.mod there is only the standard library.
func goProgram(c Call, f function) (Program, error) {
	request := struct {
		Parameters map[string]any `json:"parameters"`
		Names      []string       `json:"names"`
	}{Parameters: keywords(c)}
	if f.isPositional {
		request.Names = f.names()
	}
	text, err := json.Marshal(request)
	return Program{
		Command: []string{"go", "run", Dir + "/main.go"},
		Stdin:   string(text),
		Files:   map[string]string{"main.go": strings.NewReplacer("{{import_path}}", c.ImportPath, "{{function}}", f.name).Replace(goDriver)},
		Env: map[string]string{
			"CGO_ENABLED": "0", // an image may lack a C compiler
			"GOCACHE":     scratch + "/go-build",
			"GOENV":       "off", // a file below HOME
			"GOFLAGS":     "-buildvcs=false",
			"GOPROXY":     "off",
			"GOSUMDB":     "off",
			"GOTMPDIR":    "/tmp", // TMPDIR may be elsewhere
			"GOTOOLCHAIN": "local",
		},
	}, err
}
