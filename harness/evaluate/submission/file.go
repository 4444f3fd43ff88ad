// Package submission looks at the file that a script left for a competition: whether it is
// there, how many rows it has (EX-024, EX-025), and whether it matches a sample.
//
// A submission is an untrusted file. Nothing here follows a link out of final/, waits for a
// pipe, or takes memory that grows with the file.
package submission

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// DefaultName is the file in final/ that a script is expected to write.
const DefaultName = "submission.csv"

// File describes the submission of a script (EX-025).
type File struct {
	// Exists reports whether final/ contains a regular file of the name. A link counts as
	// missing, as for the outputs of a run.
	Exists bool `json:"exists"`
	// Problem says why there is no submission: "is a directory, not a file", or "does not exist" with the
	// names of other files there. It is empty for a submission, and when final/ does not exist.
	Problem string `json:"problem"`
	// Path is the absolute path at which the file is or should be.
	Path string `json:"path"`
	// SizeBytes is 0 when the file does not exist.
	SizeBytes int64 `json:"size_bytes"`
	// RowCount is the number of lines that are not blank, less one for the header, and at
	// least 0; nil when the file does not exist. Lines end with LF, or with CR in a file
	// without any LF. Quotes do not count.
	RowCount *int64 `json:"row_count"`
}

// Info describes the file name, [DefaultName] if empty, in final/ of workingDir (EX-025). A
// missing file is not an error.
func Info(workingDir, name string) (File, error) {
	file, info, err := open(workingDir, name)
	if err != nil || !info.Exists {
		return info, err
	}
	defer file.Close()
	rows, err := countRows(file)
	if err != nil {
		return info, &sandbox.PathError{Field: "submission", Path: info.Path, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	info.RowCount = &rows
	return info, nil
}

// Verify reports whether the file exists and is not empty (EX-024).
func Verify(workingDir, name string) (bool, error) {
	file, info, err := open(workingDir, name)
	if err != nil || !info.Exists {
		return false, err
	}
	return info.SizeBytes > 0, file.Close()
}

// open opens the file without leaving final/. The file is nil when there is none.
func open(workingDir, name string) (*os.File, File, error) {
	name = nameOr(name)
	if err := checkName(name); err != nil {
		return nil, File{}, err
	}
	dir, err := filepath.Abs(filepath.Join(workingDir, "final"))
	if err != nil {
		return nil, File{}, &sandbox.PathError{Field: "final", Path: workingDir, Rule: "cannot be used", Err: err}
	}
	info := File{Path: filepath.Join(dir, filepath.FromSlash(name))}
	var file *os.File
	var stat fs.FileInfo
	err = fsx.InRoot(dir, func(root *os.Root) (err error) {
		if file, stat, err = fsx.OpenIn(root, name); errors.Is(err, fs.ErrNotExist) {
			info.Problem = missing(root, name)
		}
		return err
	})
	var special *fsx.NotRegularError
	switch {
	case errors.As(err, &special):
		info.Problem = "is " + fsx.Kind(special.Mode) + ", not a file"
		if special.Mode&fs.ModeSymlink != 0 {
			info.Problem = "is a symbolic link, which is not followed"
		}
		return nil, info, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, info, nil
	case err != nil:
		return nil, info, &sandbox.PathError{Field: "submission", Path: info.Path, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	info.Exists, info.SizeBytes = true, stat.Size()
	return file, info, nil
}

// missing says which files final/ has instead of one of the name.
func missing(final *os.Root, name string) string {
	const most, few = 1000, 3 // entries that are read, and names that are shown
	open, err := final.Open(".")
	if err != nil {
		return "does not exist"
	}
	defer open.Close()
	entries, _ := open.Readdirnames(most) // an error is an empty directory
	slices.Sort(entries)
	has := "is empty"
	if len(entries) > 0 {
		var names []string
		for _, entry := range entries[:min(len(entries), few)] {
			names = append(names, shown(entry))
		}
		if has = "has " + strings.Join(names, ", "); len(entries) > few {
			has += " and more"
		}
	}
	return "does not exist, and ./final " + has + ": the script must write ./final/" + text.Fit(name, text.Most)
}

func nameOr(name string) string { return cmp.Or(name, DefaultName) }

func checkName(name string) error {
	if !filepath.IsLocal(filepath.FromSlash(name)) || name == "." || strings.ContainsAny(name, "\x00\\") {
		return &policy.FieldError{Field: "submission", Value: shown(name), Rule: "must be the name of a file in ./final"}
	}
	return nil
}

// shown quotes the beginning of an untrusted text for a message.
func shown(untrusted string) string { return text.Quote(untrusted, 80) }

// countRows counts the lines of a file as [File.RowCount] says. It counts for both kinds of
// line ends, because only the end of the file shows which kind the file has.
func countRows(r io.Reader) (int64, error) {
	var lf, cr int64               // lines that have text
	var lfText, crText, anyLF bool // the line has text
	in := bufio.NewReaderSize(r, 256<<10)
	for {
		b, err := in.ReadByte()
		if b == '\n' || err != nil {
			anyLF = anyLF || err == nil
			if lfText {
				lf++
			}
			lfText = false
		}
		if b == '\r' || err != nil {
			if crText {
				cr++
			}
			crText = false
		}
		switch {
		case errors.Is(err, io.EOF) && anyLF:
			return max(lf-1, 0), nil
		case errors.Is(err, io.EOF):
			return max(cr-1, 0), nil
		case err != nil:
			return 0, err
		case b != ' ' && (b < '\t' || b > '\r'): // is not blank
			lfText, crText = true, true
		}
	}
}
