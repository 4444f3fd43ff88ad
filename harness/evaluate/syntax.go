package evaluate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// compileAll compiles the files 0.py, 1.py, … of ./input, and prints a line for each one that is not
// Python: its number, the line and the message.
const compileAll = `
import json, sys, warnings
warnings.simplefilter("ignore")
for i in range(int(sys.argv[1])):
    try:
        with open(f"input/{i}.py", "rb") as script:
            compile(script.read(), "script", "exec", dont_inherit=True)
    except SyntaxError as e:
        print(json.dumps([i, e.lineno or 0, f"{type(e).__name__}: {e.msg}"]))
    except (MemoryError, OverflowError, RecursionError, ValueError) as e:
        print(json.dumps([i, 0, f"{type(e).__name__}: {e}"]))
`

const (
	// syntaxTimeout bounds the check of all scripts.
	syntaxTimeout = 5 * time.Minute
	// maxSyntax bounds the scripts of one check.
	maxSyntax = 10_000
)

// CheckSyntax reports for each script why the Python of an image cannot compile it; nil for one that
// it can. One container compiles all scripts, and runs none of them. pattern is that of [Options].
func CheckSyntax(ctx context.Context, box sandbox.Box, pattern sandbox.Request, scripts []string) ([]*Violation, error) {
	if len(scripts) > maxSyntax {
		return nil, fmt.Errorf("the syntax of more than %d scripts cannot be checked at once", maxSyntax)
	}
	private, remove, err := box.Store().Temp("syntax")
	if err != nil {
		return nil, fmt.Errorf("creating a directory for the scripts: %w", err)
	}
	defer func() { _ = remove() }() // a later sweep removes the rest
	input := filepath.Join(private, inputName)
	errs := []error{os.Mkdir(input, 0o755)}
	for i, script := range scripts {
		errs = append(errs, os.WriteFile(filepath.Join(input, strconv.Itoa(i)+".py"), []byte(script), 0o600))
	}
	if err := errors.Join(append(errs, readable(input))...); err != nil {
		return nil, fmt.Errorf("copying the scripts: %w", err)
	}
	req := pattern
	req.Name, req.Input, req.Limits.Timeout = "check", input, syntaxTimeout
	req.Command = []string{"python3", "-c", compileAll, strconv.Itoa(len(scripts))}
	res, err := box.Run(ctx, req)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the syntax was not checked: %w", err)
	case res.Status != result.StatusExited || res.ExitCode != 0 || res.StdoutTruncated:
		return nil, fmt.Errorf("the syntax was not checked: %s", text.Brief(res.Explanation+" "+res.ErrorSummary))
	}
	return syntaxErrors(res.Stdout, len(scripts))
}

// syntaxErrors reads the output of the check of n scripts.
func syntaxErrors(stdout string, n int) ([]*Violation, error) {
	found := make([]*Violation, n)
	lines := bufio.NewScanner(strings.NewReader(stdout))
	lines.Buffer(nil, len(stdout)+1)
	for lines.Scan() {
		var i, line int
		var rule string
		if err := json.Unmarshal(lines.Bytes(), &[]any{&i, &line, &rule}); err != nil || i < 0 || i >= n {
			return nil, fmt.Errorf("the syntax was not checked: python3 printed %s", shown(lines.Text()))
		}
		found[i] = &Violation{Line: max(line, 0), Rule: text.Brief(rule)}
	}
	return found, nil
}
