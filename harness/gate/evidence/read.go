package evidence

import (
	"fmt"
	"io"
	"os"
)

// MaxDocument is a bound for documents of a gate directory, in bytes: far more than any
// that this package writes.
const MaxDocument = 64 << 20

// Read decodes a document of at most max bytes into v, a pointer to a zero value, as
// [Decode] does. Only a regular file is read, and no link is followed. What is wrong
// with the file itself is a [*FileError] that names it.
func Read(root *os.Root, name string, max int64, v any) error {
	text, err := ReadText(root, name, max)
	if err != nil {
		return err
	}
	if err := Decode(text, v); err != nil {
		return &FileError{File: name, Rule: "is no such document: " + err.Error(), Err: err}
	}
	return nil
}

// ReadText reads a file of at most max bytes, as [Read] does.
func ReadText(root *os.Root, name string, max int64) ([]byte, error) {
	file, err := openFile(root, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, max+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > max:
		return nil, &FileError{File: name, Rule: fmt.Sprintf("has more than %d bytes", max)}
	}
	return text, nil
}
