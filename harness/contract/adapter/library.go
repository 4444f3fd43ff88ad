package adapter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter/driver"
)

// Library is the interface of a library (AR-04). A generated program calls it in the sandbox.
type Library struct {
	Language string `json:"language"`
	Package  string `json:"package"`
	// ImportPath is the module that the program imports; empty is the package.
	ImportPath string `json:"import_path,omitempty"`
	// Functions has the function of each operation; see [driver.Call].
	Functions map[string]string `json:"function_mapping"`
}

func (l *Library) check(k *checker) {
	for _, p := range driver.Check(l.Language, l.Package, l.ImportPath, l.Functions) {
		k.refuse("interface.sdk."+p.Path, p.Value, p.Rule)
	}
	if len(l.Functions) == 0 {
		k.refuse("interface.sdk.function_mapping", "", "must have at least one operation")
	}
}

// positional are the parameters that a function needs; nil for one with any parameters.
func (l *Library) positional(operation string) []string {
	_, list, found := strings.Cut(l.Functions[operation], "(")
	if !found {
		return nil
	}
	names := strings.FieldsFunc(strings.TrimSuffix(list, ")"), func(r rune) bool { return r == ',' || r == ' ' })
	for i, name := range names { // Rust has &a and a.into()
		names[i] = strings.TrimSuffix(strings.TrimPrefix(name, "&"), ".into()")
	}
	return names
}

// toolchainChildren are the processes and threads that a compiler needs.
const toolchainChildren = 100

// function is the call of a function of a library.
func (x *call) function() {
	x.noArguments()
	l := x.Interface.SDK
	program, err := driver.New(driver.Call{Language: l.Language, Package: l.Package, ImportPath: l.ImportPath,
		Function: l.Functions[x.operation], Parameters: x.parameters})
	if err != nil {
		x.badParameters(err)
		return
	}
	x.command(program.Command[0], program.Command[1:])
	x.adapted.Target = fmt.Sprintf("%s %s %s", l.Language, l.Package, l.Functions[x.operation])
	x.setEnv(program.Env)
	to := &x.adapted.Contract
	if program.Stdin != "" {
		to.Inputs.Stdin = &program.Stdin
	}
	if compiled := l.Language == driver.Go || l.Language == driver.Rust; compiled && to.Sandbox.Processes.MaxChildren == nil {
		to.Sandbox.Processes.MaxChildren = new(int64(toolchainChildren))
	}
	x.adapted.Files, x.adapted.FilesDir = program.Files, driver.Dir
	x.adapted.Read = l.read
}

// read is the answer of the program.
func (l *Library) read(o contract.Outcome) contract.Answer {
	if isCut(o) {
		return contract.Answer{Err: errCut}
	}
	text, err := driver.Answer([]byte(o.Stdout))
	if failed, ok := errors.AsType[*driver.FunctionError](err); ok {
		return contract.Answer{Err: failed}
	}
	if o.ExitCode != nil && *o.ExitCode != 0 {
		if missing := driver.Missing(l.Language, *o.ExitCode, o.Stderr); missing != "" {
			return contract.Answer{Err: fmt.Errorf("the image has no %s, which adapters for %s need", missing, l.Language)}
		}
	}
	if err != nil {
		return contract.Answer{Err: err}
	}
	value, err := plain(text)
	return contract.Answer{Value: value, Err: err}
}
