package driver

import (
	_ "embed" // for the driver
	"encoding/json"
)

//go:embed driver.py
var pythonDriver string

func python() language {
	return language{
		packages: newForm(`[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?`, "must be the name of a Python distribution, such as scikit-learn"),
		imports:  newForm(word+`(?:\.`+word+`)*`, "must be a Python module, such as os.path"),
		functions: newForm(word+`(?:\.`+word+`)*`,
			"must be a function such as dumps, Class.method or name(a, b)"),
		parameters:  newForm(word, "must be a Python name"),
		imported:    itself,
		checkValues: valueChecks(anyValue),
		program:     pythonProgram,
		command:     "python3",
		missing:     pythonSigns(),
	}
}

func pythonProgram(c Call, f function) (Program, error) {
	request := struct {
		ImportPath string         `json:"import_path"`
		Function   string         `json:"function"`
		Args       []any          `json:"args"`
		Kwargs     map[string]any `json:"kwargs"`
	}{c.ImportPath, f.name, []any{}, map[string]any{}}
	for _, value := range arguments(c, f) {
		request.Args = append(request.Args, pointed(value))
	}
	if !f.isPositional {
		for name, value := range c.Parameters {
			request.Kwargs[name] = pointed(value)
		}
	}
	text, err := json.Marshal(request)
	return Program{Command: []string{"python3", "-c", pythonDriver}, Stdin: string(text)}, err
}

// pointed gives floating-point numbers a point: Python has two types of numbers, and JSON one.
func pointed(value any) any {
	switch value := value.(type) {
	case float64:
		return withPoint(value)
	case []any:
		all := make([]any, len(value))
		for i, item := range value {
			all[i] = pointed(item)
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(value))
		for key, item := range value {
			all[key] = pointed(item)
		}
		return all
	}
	return value
}
