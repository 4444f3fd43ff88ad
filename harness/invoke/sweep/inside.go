package sweep

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Inside says whether a path is that of a folder or of something below it, once all links
// of both are followed. What does not exist yet may be meant; a relative path is
// relative to the current folder.
func Inside(folder, path string) (bool, error) {
	folder, err := resolve(folder)
	if err != nil {
		return false, err
	}
	path, err = resolve(path)
	if err != nil {
		return false, err
	}
	return fsx.Within(path, folder), nil
}

// maxLinks bounds the links of one path, as Linux does.
const maxLinks = 40

// resolve is the absolute path without links. Parts that do not exist stay as they are.
// ".." is what is above the end of a link, not above the link.
func resolve(path string) (string, error) {
	if !filepath.IsAbs(path) {
		current, err := os.Getwd()
		if err != nil {
			return "", err
		}
		path = current + string(filepath.Separator) + path
	}
	root := filepath.VolumeName(path) + string(filepath.Separator)
	at, left := root, parts(path[len(root)-1:])
	for links := 0; len(left) > 0; {
		part := left[0]
		left = left[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, part)
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", err
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", &fs.PathError{Op: "resolve", Path: path, Err: errors.New("has too many links")}
			}
			target, err := os.Readlink(next)
			if err != nil {
				return "", err
			}
			if filepath.IsAbs(target) {
				at = root
			}
			left = append(parts(strings.TrimPrefix(target, filepath.VolumeName(target))), left...)
			continue
		}
		at = next
	}
	return at, nil
}

func parts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r < 0x80 && os.IsPathSeparator(uint8(r)) })
}
