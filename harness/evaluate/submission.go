package evaluate

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// DefaultSubmission is the file in final/ that a script is expected to write.
const DefaultSubmission = "submission.csv"

// Submission describes the file that a script left (EX-025).
type Submission struct {
	// Exists says that final/ holds a regular file of the name. A link counts as
	// missing, as it does for the outputs of a run: it may lead anywhere.
	Exists bool `json:"exists"`
	// Problem is why it does not exist although there is something of its name, such as
	// "is a folder, not a file"; empty when there is nothing.
	Problem string `json:"problem"`
	// Path is where the file is or should be, absolute.
	Path string `json:"path"`
	// SizeBytes is 0 when it does not exist.
	SizeBytes int64 `json:"size_bytes"`
	// RowCount is the number of lines that are not blank, less one for the
	// header, and at least 0; nil when the file does not exist. Lines end with LF,
	// or with CR in a file without any LF. What stands in quotes is not looked at.
	RowCount *int64 `json:"row_count"`
}

// SubmissionInfo describes the file name, [DefaultSubmission] if empty, in final/ of
// workingDir (EX-025). A file that is missing is no error. It reads the file once
// and holds little of it in memory, whatever its lines are.
func SubmissionInfo(workingDir, name string) (Submission, error) {
	file, info, err := openSubmission(workingDir, name)
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

// VerifySubmission reports whether the file is there and not empty (EX-024).
func VerifySubmission(workingDir, name string) (bool, error) {
	file, info, err := openSubmission(workingDir, name)
	if err != nil || !info.Exists {
		return false, err
	}
	return info.SizeBytes > 0, file.Close()
}

// openSubmission opens the file without leaving final/; it is nil when there is none.
func openSubmission(workingDir, name string) (*os.File, Submission, error) {
	if name == "" {
		name = DefaultSubmission
	}
	if err := checkSubmissionName(name); err != nil {
		return nil, Submission{}, err
	}
	dir, err := filepath.Abs(filepath.Join(workingDir, finalName))
	if err != nil {
		return nil, Submission{}, &sandbox.PathError{Field: "final", Path: workingDir, Rule: "cannot be used", Err: err}
	}
	info := Submission{Path: filepath.Join(dir, filepath.FromSlash(name))}
	file, stat, err := openRegular(dir, name)
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

func checkSubmissionName(name string) error {
	if !filepath.IsLocal(filepath.FromSlash(name)) || name == "." || strings.ContainsAny(name, "\x00\\") {
		return &policy.FieldError{Field: "submission", Value: shown(name), Rule: "must be the name of a file in ./final"}
	}
	return nil
}

// openRegular opens a regular file below dir. No link leads out of dir, and none is
// the file itself.
func openRegular(dir, name string) (*os.File, fs.FileInfo, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	return fsx.OpenIn(root, name)
}

// countRows counts the lines of a file as [Submission.RowCount] says.
func countRows(r io.Reader) (int64, error) {
	// Both ways of counting at once: only the end of the file tells which holds.
	var lf, cr int64
	var lfText, crText, anyLF bool
	buffered := bufio.NewReaderSize(r, 256<<10)
	for {
		line, err := buffered.ReadSlice('\n')
		if ended := bytes.HasSuffix(line, []byte{'\n'}); ended || len(line) > 0 {
			lfText = lfText || len(bytes.TrimSpace(line)) > 0
			if !anyLF {
				rest := line
				for i := bytes.IndexByte(rest, '\r'); i >= 0; i = bytes.IndexByte(rest, '\r') {
					if crText || len(bytes.TrimSpace(rest[:i])) > 0 {
						cr++
					}
					crText, rest = false, rest[i+1:]
				}
				crText = crText || len(bytes.TrimSpace(rest)) > 0
			}
			if ended {
				anyLF = true
				if lfText {
					lf++
				}
				lfText = false
			}
		}
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			if lfText {
				lf++
			}
			if crText {
				cr++
			}
			if !anyLF {
				lf = cr
			}
			return max(lf-1, 0), nil
		default:
			return 0, err
		}
	}
}
