package driver

import (
	_ "embed" // for the driver
	"encoding/json"
	"strconv"
)

//go:embed driver.js
var nodeDriver string

func node() language {
	name := `[A-Za-z_$][A-Za-z0-9_$]*`
	module := newForm(`(?:node:|\./|/|@`+segment+`/)?`+paths,
		"must be a package or file of Node.js, such as lodash, @scope/name, node:path or ./lib/index.mjs")
	return language{
		packages: module, imports: module,
		functions: newForm(name+`(?:\.`+name+`)*`,
			"must be a function such as join, default, Class.method or name(a, b)"),
		parameters:  newForm(name, "must be a JavaScript name"),
		imported:    itself,
		checkValues: valueChecks(exact),
		program:     nodeProgram,
		command:     "node",
		missing:     nodeSigns(),
	}
}

// exact is the rule that a whole number breaks if JavaScript would round it.
func exact(value any) string {
	const most = 1<<53 - 1
	n, ok := value.(int64)
	if text, isNumber := value.(json.Number); isNumber && isWhole(text) {
		var err error
		if n, err = strconv.ParseInt(text.String(), 10, 64); err != nil {
			n = most + 1
		}
		ok = true
	}
	if ok && (n > most || n < -most) {
		return "is a whole number that JavaScript rounds; put it in quotes to keep its digits"
	}
	return ""
}

func nodeProgram(c Call, f function) (Program, error) {
	request := struct {
		ImportPath string `json:"import_path"`
		Function   string `json:"function"`
		Args       []any  `json:"args"`
	}{c.ImportPath, f.name, arguments(c, f)}
	if !f.isPositional {
		request.Args = []any{keywords(c)}
	}
	text, err := json.Marshal(request)
	return Program{Command: []string{"node", "-e", nodeDriver}, Stdin: string(text)}, err
}
