package driver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/text"
)

// marker begins the line of the answer. Only what the library writes before the call, and what
// it writes past its driver, can also be on stdout.
const marker = "evalbox/answer/v1 "

// ErrNoAnswer is the error of a program that did not get to its answer: it was not started, did
// not compile, or was ended by its function.
var ErrNoAnswer = errors.New("the program gave no answer")

// A FunctionError is the failure of a function, or of its import.
type FunctionError struct {
	// Type is the type of the exception or error, "panic" for a panic.
	Type    string `json:"type"`
	Message string `json:"message"`
	// Traceback is for people. It is empty if the language has none.
	Traceback string `json:"traceback"`
}

// Error is the type and the beginning of the message, on one line.
func (e *FunctionError) Error() string {
	return text.Brief(e.Type) + ": " + text.Brief(e.Message)
}

// Answer returns the value that a function gave, in JSON. The program is not trusted: it may also
// write an answer itself, which is its answer then. The last one counts.
//
// The error is [ErrNoAnswer], a [*FunctionError], or says what is wrong with the answer.
func Answer(stdout []byte) (json.RawMessage, error) {
	line, ok := lastLine(stdout)
	if !ok {
		return nil, ErrNoAnswer
	}
	line, isWhole := bytes.CutSuffix(line, []byte("\n"))
	switch {
	case !isWhole:
		return nil, errors.New("the answer of the program is cut off")
	case !utf8.Valid(line):
		return nil, errors.New("the answer of the program is not UTF-8")
	}
	var answer struct {
		Value json.RawMessage `json:"value"`
		Error *FunctionError  `json:"error"`
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return nil, fmt.Errorf("the answer of the program is wrong: %w", err)
	}
	switch {
	case answer.Error != nil:
		return nil, answer.Error
	case answer.Value == nil:
		return nil, errors.New("the answer of the program has neither a value nor an error")
	}
	return answer.Value, nil
}

// lastLine is the last line with the marker, without it and with its end.
func lastLine(stdout []byte) ([]byte, bool) {
	for end := len(stdout); end > 0; {
		start := bytes.LastIndexByte(stdout[:end-1], '\n') + 1
		if line, ok := bytes.CutPrefix(stdout[start:end], []byte(marker)); ok {
			return line, true
		}
		end = start
	}
	return nil, false
}
