package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/evalbox/evalbox/internal/terminal"
)

// A usageError is a command line that does not exist.
type usageError struct {
	text, hint string
}

func (e *usageError) Error() string { return e.text }

func (e *usageError) Hint() string { return e.hint }

// usagef makes a usageError whose hint is the help of the command.
func usagef(command, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...), fmt.Sprintf("run '%s --help'", command)}
}

// A hintedError is an error with a hint.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }

func (e *hintedError) Unwrap() error { return e.err }

func (e *hintedError) Hint() string { return e.hint }

// errReaderGone means that the reader of the output has gone away, as with `| head`. It
// ends the command and is not a failure.
var errReaderGone = errors.New("the reader of the output is gone")

// readerGone gives a broken pipe its class, and names an output that cannot be
// written to.
func readerGone(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) && pathErr.Op == "write" && !errors.Is(err, syscall.EPIPE) {
		return &fileError{fileOutput, pathErr.Path, err}
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		return errReaderGone
	}
	return err
}

// resultLost gives the loss of a run's result its hint.
func resultLost(err error) error {
	if err == nil || errors.Is(err, errReaderGone) {
		return err
	}
	return &hintedError{err, "the result is in the record: sandbox ls, and sandbox show ID"}
}

// report prints an error, one line for each problem, and hints.
func (a *app) report(err error) {
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "sandbox: ")
		if line != "" {
			fmt.Fprintf(a.streams.Err, "sandbox: %s\n", terminal.Text(line))
		}
	}
	for _, hint := range hints(err) {
		if hint == fieldHints["final"] && a.command != "sandbox run" {
			hint = fieldHints["working folder"] // only a run has a --final
		}
		fmt.Fprintf(a.streams.Err, "sandbox: hint: %s\n", terminal.Text(a.repeatFlags(hint)))
	}
}

// A fileError is a file of the caller that cannot be used.
type fileError struct {
	what, path string
	err        error
}

func (e *fileError) Error() string {
	reason := e.err
	var pathErr *fs.PathError
	if errors.As(reason, &pathErr) {
		reason = pathErr.Err // the path is named already
	}
	return fmt.Sprintf("%s %s: %v", e.what, e.path, reason)
}

func (e *fileError) Unwrap() error { return e.err }

// Hint is the hint of the cause, or else that of the kind of file.
func (e *fileError) Hint() string {
	var knows interface{ Hint() string }
	if errors.As(e.err, &knows) && knows.Hint() != "" {
		return knows.Hint()
	}
	return fileHints[e.what]
}

// The kinds of files.
const (
	fileEnv      = "env-file"
	fileStream   = "file"
	fileOutput   = "output"
	fileArchive  = "archive"
	fileContract = "contract"
	fileApproval = "approval"
	fileRegistry = "registry"
	fileProfiles = "profiles"

	fileArtifacts = "profile of artifacts"
	fileWish      = "wish"
	fileTools     = "registry of tools"
	fileKey       = "key"
	filePublicKey = "public key"
)

var fileHints = map[string]string{
	fileEnv:      "give a text file with lines NAME=VALUE",
	fileOutput:   "make room there, or choose another place for the output",
	fileArchive:  "give the path of a file, or -",
	fileStream:   "give the path of a file, or - for stdin",
	fileContract: "give the path of a contract, or - for stdin; make one with: sandbox contract new",
	fileApproval: "make one with: sandbox contract approve",
	fileRegistry: "leave --registry out for the shipped one, which is a pattern for your own",
	fileProfiles: "leave --profiles out for the shipped ones, which are a pattern for your own",

	fileArtifacts: "give a YAML file that begins with schema: evalbox/artifacts/v1",
	fileWish:      "give a wish or its lock; or a command: sandbox gate run -- pytest -q",
	fileTools:     "give a YAML file that begins with schema: evalbox/tools/v1; see docs/contract.md",
	fileKey:       "make one with: openssl genpkey -algorithm ed25519 -out gate.key",
	filePublicKey: "get it with: openssl pkey -in gate.key -pubout -out gate.pub",
}
