package fsx

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
)

// Lines is the form of a file that only grows, one line at a time, such as a log. A crash
// may cut the last line, or leave zeros in its place. The next append removes such a torn
// line, but only if it is recognizable as a line of this form: a file of another kind
// stays as it is.
type Lines struct {
	// Start is how every line begins.
	Start string
	// Max bounds the bytes of a line, without its end.
	Max int
	// Sync makes Append return only when its lines are on the disk.
	Sync bool
}

// A Line is one line of such a file.
type Line struct {
	// Number counts from 1. End is the offset behind the line. Both count from the place
	// where the reading began.
	Number int
	End    int64
	// Text is the line without its end. It is valid until the next line is read.
	Text []byte
	// Torn means that the line has no end, Last that nothing follows.
	Torn, Last bool
}

// Ours reports whether a text can be the beginning of a line of this form. A crash of the
// machine may leave zeros instead.
func (l Lines) Ours(text []byte) bool {
	n := min(len(text), len(l.Start))
	return string(text[:n]) == l.Start[:n] || len(bytes.Trim(text, "\x00")) == 0
}

// Read returns the lines of a file. An error is the last element; its Line says where.
func (l Lines) Read(r io.Reader) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		lines := bufio.NewReaderSize(r, 64<<10)
		line := Line{}
		for buffer := []byte(nil); ; {
			line.Number++
			var err error
			buffer, err = l.readLine(lines, buffer[:0])
			line.Torn = errors.Is(err, io.EOF)
			switch {
			case line.Torn && len(buffer) == 0:
				return
			case err != nil && !line.Torn:
				yield(line, err)
				return
			}
			line.End += int64(len(buffer))
			line.Last = line.Torn
			if !line.Torn {
				_, err := lines.Peek(1)
				line.Last = errors.Is(err, io.EOF)
			}
			line.Text = bytes.TrimRight(buffer, "\r\n")
			if !yield(line, nil) || line.Torn {
				return
			}
		}
	}
}

// readLine reads up to and with the next end of a line, into buffer.
func (l Lines) readLine(r *bufio.Reader, buffer []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		buffer = append(buffer, part...)
		if len(buffer) > l.Max+1 {
			return buffer, fmt.Errorf("is longer than %d bytes", l.Max)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return buffer, err
		}
	}
}

// OpenAppend opens a file for [Lines.Append], and creates it if it is missing. A link or
// anything else than a regular file is refused.
func OpenAppend(path string, perm fs.FileMode) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|OpenFlags, perm)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = openError(path, &NotRegularError{info.Mode().Type()})
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Append adds lines to a file of [OpenAppend]. It removes a torn last line first. It is one
// write, so another reader never sees half of a line, unless the disk is full. The caller
// holds a lock that all writers take.
func (l Lines) Append(file *os.File, texts ...[]byte) error {
	var all []byte
	for _, text := range texts {
		if len(text) > l.Max {
			return fmt.Errorf("a line of %d bytes is longer than %d bytes", len(text), l.Max)
		}
		all = append(append(all, text...), '\n')
	}
	size, err := l.repair(file)
	if err != nil {
		return err
	}
	if _, err := file.Write(all); err != nil {
		return errors.Join(err, file.Truncate(size))
	}
	if !l.Sync {
		return nil
	}
	return file.Sync()
}

// repair removes a last line without an end, and returns the size of the whole lines.
func (l Lines) repair(file *os.File) (size int64, err error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	size = info.Size()
	tail := make([]byte, 1)
	if _, err := file.ReadAt(tail, size-1); err != nil || tail[0] == '\n' {
		return size, err
	}
	from := max(0, size-int64(l.Max)-1)
	tail = make([]byte, size-from)
	if _, err := file.ReadAt(tail, from); err != nil {
		return 0, err
	}
	at := bytes.LastIndexByte(tail, '\n') + 1
	if at == 0 && from > 0 || !l.Ours(tail[at:]) {
		return 0, errors.New("the last line has no end, and is not one of this kind of file")
	}
	return from + int64(at), file.Truncate(from + int64(at))
}
