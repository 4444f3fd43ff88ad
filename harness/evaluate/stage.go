package evaluate

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// maxAnswers bounds the entries of an answers folder.
const maxAnswers = 100_000

// staging makes the input folder of a grader.
type staging struct {
	ctx  context.Context //nolint:containedctx // lives as long as the one copy that it interrupts
	to   *os.Root
	left policy.Size
}

// stage fills the folder to with a copy of the outputs, each of which must still have
// the hash that the run's result names, and with the answers.
func stage(ctx context.Context, grader Grader, to, final string, outputs []result.Output) (err error) {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	s := &staging{ctx: ctx, to: root, left: grader.MaxBytes}
	if s.left == 0 {
		s.left = DefaultGraderBytes
	}
	if err := errors.Join(root.Mkdir(gradedName, 0o755), root.Mkdir(answersName, 0o755)); err != nil {
		return err
	}
	if err := s.outputs(final, outputs); err != nil {
		return err
	}
	if err := s.answers(grader.Answers); err != nil {
		return err
	}
	return s.open(to)
}

// outputs copies what a run left.
func (s *staging) outputs(final string, outputs []result.Output) error {
	if len(outputs) == 0 {
		return nil // the grader says what is missing
	}
	from, err := os.OpenRoot(final)
	if err != nil {
		return &sandbox.PathError{Field: "final", Path: final, Rule: "cannot be opened", Err: fsx.Cause(err)}
	}
	defer from.Close()
	for _, output := range outputs {
		name, err := outputName(output)
		if err != nil {
			return err
		}
		sum, err := s.copy(from, name, filepath.Join(gradedName, name))
		if err == nil && sum != output.SHA256 {
			err = errors.New("changed after the run")
		}
		if err != nil {
			return &sandbox.PathError{Field: "final", Path: output.Path, Rule: "cannot be graded", Err: fsx.Cause(err)}
		}
	}
	return nil
}

// outputName is the name of an output as the file system has it.
func outputName(output result.Output) (string, error) {
	name := output.Path
	if output.PathBase64 != "" {
		raw, err := base64.StdEncoding.DecodeString(output.PathBase64)
		if err != nil {
			return "", fmt.Errorf("output %s: its name cannot be read: %w", shown(output.Path), err)
		}
		name = string(raw)
	}
	name = filepath.FromSlash(name)
	if !filepath.IsLocal(name) {
		return "", fmt.Errorf("output %s: is not below ./final", shown(output.Path))
	}
	return name, nil
}

// answers takes over the answers. They are the caller's own: links to files are
// followed.
func (s *staging) answers(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return &sandbox.PathError{Field: "answers", Path: dir, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return &sandbox.PathError{Field: "answers", Path: dir, Rule: "is not a folder", Err: fsx.Cause(err)}
	}
	count := 0
	return filepath.WalkDir(real, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return &sandbox.PathError{Field: "answers", Path: path, Rule: "cannot be read", Err: fsx.Cause(err)}
		}
		if count++; count > maxAnswers {
			return &sandbox.PathError{Field: "answers", Path: dir, Rule: fmt.Sprintf("has more than %d entries", maxAnswers)}
		}
		if entry.IsDir() {
			return nil
		}
		rel, err := filepath.Rel(real, path)
		if err == nil {
			err = s.answer(path, filepath.Join(answersName, rel))
		}
		if err != nil {
			return &sandbox.PathError{Field: "answers", Path: path, Rule: "cannot be staged", Err: fsx.Cause(err)}
		}
		return nil
	})
}

func (s *staging) answer(path, to string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	from, err := os.OpenRoot(filepath.Dir(real))
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = s.copy(from, filepath.Base(real), to)
	return err
}

// copy copies a regular file, within what is left of the bound, and returns its hash.
func (s *staging) copy(from *os.Root, name, to string) (sum string, err error) {
	if err := context.Cause(s.ctx); err != nil {
		return "", err
	}
	source, _, err := fsx.OpenIn(from, name)
	if err != nil {
		return "", err
	}
	defer source.Close()
	if err := s.to.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	hash := sha256.New()
	n, err := fsx.Create(s.to, to, io.TeeReader(io.LimitReader(source, int64(s.left)+1), hash), 0o644)
	if err != nil {
		return "", err
	}
	if s.left -= policy.Size(n); s.left < 0 {
		return "", errors.New("there is more to copy for the grader than is permitted")
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// open makes everything readable for every user, whatever our umask is.
func (s *staging) open(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(path, 0o755) //nolint:gosec // a new folder of our own, which nobody else can write
		}
		return os.Chmod(path, 0o644) //nolint:gosec // likewise
	})
}
