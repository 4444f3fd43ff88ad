package browse

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Bounds of what is shown of a log.
const (
	tailBytes = 128 << 10
	// maxBacklog is how far a live page may be behind: further, and it goes on at the tail.
	maxBacklog = 512 << 10
	maxLine    = 2000
	// pageBytes and pageLines bound a page of a log, pageMatches and searchBytes a search.
	pageBytes, pageLines = 512 << 10, 2000
	pageMatches          = 500
	searchBytes          = 64 << 20
)

// logView is the end of one stream on the page of a run.
type logView struct {
	Stream  string
	Lines   []string
	Size    int64
	Skipped int64
	Problem string
}

// streams are the streams by the names of pages, with their files.
var streams = map[string]string{"stdout": record.StdoutFile, "stderr": record.StderrFile}

func logStart(each record.Record, file string) logView {
	f := follower{path: filepath.Join(each.Dir, file)}
	lines, _, err := f.next(each.State != record.Running)
	v := logView{Stream: strings.TrimSuffix(file, ".log"), Lines: lines, Size: f.at + int64(len(f.part)), Skipped: f.skipped}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.Problem = fsx.Cause(err).Error()
	}
	return v
}

// follower reads a log while it is written.
type follower struct {
	path, target string
	at           int64
	part         []byte // of the last line
	began        bool
	skipped      int64
}

// next returns the new lines, at the end also one that has no newline. fresh says that they are not
// those after the lines before: it is the first call, or the log is far ahead.
func (f *follower) next(end bool) (lines []string, fresh bool, err error) {
	file, err := fsx.Open(f.path)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, false, err
	}
	if fresh = !f.began || info.Size()-f.at > maxBacklog || info.Size() < f.at; fresh {
		f.began, f.part = true, nil
		f.at = max(0, info.Size()-tailBytes)
	}
	content, err := io.ReadAll(io.NewSectionReader(file, f.at, info.Size()-f.at))
	if err != nil {
		return nil, fresh, err
	}
	read := int64(len(content))
	if fresh && f.at > 0 { // begin with a whole line
		cut := strings.IndexByte(string(content), '\n') + 1
		content = content[cut:]
		f.skipped = f.at + int64(cut)
	}
	f.at += read
	content = append(f.part, content...)
	whole := len(content)
	if !end {
		if whole = strings.LastIndexByte(string(content), '\n') + 1; len(content)-whole > maxLine {
			whole = len(content)
		}
	}
	f.part = append([]byte(nil), content[whole:]...)
	return linesOf(content[:whole]), fresh, nil
}

// linesOf cuts output into lines as a page shows them.
func linesOf(output []byte) []string {
	if len(output) == 0 {
		return nil
	}
	shown := strings.TrimSuffix(terminal.Text(string(output)), "\n")
	lines := strings.Split(shown, "\n")
	for i := range lines {
		lines[i] = text.Short(lines[i], maxLine)
	}
	return lines
}

// updates are the new lines as events.
func (f *follower) updates(end bool) []update {
	lines, fresh, err := f.next(end)
	if err != nil || len(lines) == 0 && !fresh {
		return nil
	}
	u := updateOf(f.target, "log-lines", lines)
	u.Append, u.Reset = true, fresh
	return []update{u}
}

// logPageView is a part of a log, or the lines of it that have a text.
type logPageView struct {
	ID, Stream, Query string
	Lines             []logLine
	Size              int64
	// Next is where the next part begins; 0 at the end.
	Next  int64
	First bool
}

type logLine struct {
	At   int64
	Text string
}

func (v logPageView) url(from int64) string {
	q := url.Values{"stream": {v.Stream}}
	if v.Query != "" {
		q.Set("q", v.Query)
	}
	if from > 0 {
		q.Set("from", strconv.FormatInt(from, 10))
	}
	return "/runs/" + v.ID + "/log?" + q.Encode()
}

// NextURL and FirstURL lead to other parts.
func (v logPageView) NextURL() string  { return v.url(v.Next) }
func (v logPageView) FirstURL() string { return v.url(0) }

func (s *Server) logPage(w http.ResponseWriter, r *http.Request) {
	each, ok := s.load(w, r)
	if !ok {
		return
	}
	q := r.URL.Query()
	v := logPageView{ID: each.ID, Stream: q.Get("stream"), Query: text.Fit(q.Get("q"), 200)}
	if v.Stream == "" {
		v.Stream = "stdout"
	}
	name, known := streams[v.Stream]
	if !known {
		s.missing(w, r, "There is no such stream: it is stdout or stderr.")
		return
	}
	from, _ := strconv.ParseInt(q.Get("from"), 10, 64)
	v.First = from > 0
	if err := v.read(filepath.Join(each.Dir, name), max(0, from)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.missing(w, r, "The log cannot be read: "+fsx.Cause(err).Error())
		return
	}
	s.show(w, r, http.StatusOK, "log", page{Title: v.Stream + " of run " + record.ShortID(each.ID), Nav: "runs", Body: v})
}

// read reads a part of a log. A line that is longer than the page shows is cut.
func (v *logPageView) read(path string, from int64) error {
	file, err := fsx.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	v.Size = info.Size()
	most, lines := int64(pageBytes), pageLines
	if v.Query != "" {
		most, lines = searchBytes, pageMatches
	}
	end := min(v.Size, from+most)
	reader := bufio.NewReaderSize(io.NewSectionReader(file, from, max(0, end-from)), 64<<10)
	for at := from; at < end; {
		line, err := reader.ReadSlice('\n')
		if len(line) == 0 && err != nil {
			break
		}
		if v.Query == "" || strings.Contains(string(line), v.Query) {
			for _, shown := range linesOf(line) {
				v.Lines = append(v.Lines, logLine{at, shown})
			}
		}
		at += int64(len(line))
		if len(v.Lines) >= lines {
			end = at
		}
	}
	if end < v.Size {
		v.Next = end
	}
	return nil
}

// rawLog answers with the bytes of a stream as a file to be saved.
func (s *Server) rawLog(w http.ResponseWriter, r *http.Request) {
	each, ok := s.load(w, r)
	if !ok {
		return
	}
	name, known := streams[r.PathValue("stream")]
	if !known {
		s.missing(w, r, "There is no such stream: it is stdout or stderr.")
		return
	}
	file, err := fsx.Open(filepath.Join(each.Dir, name))
	if err != nil {
		s.missing(w, r, "The log cannot be read: "+fsx.Cause(err).Error())
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		s.missing(w, r, "The log cannot be read: "+fsx.Cause(err).Error())
		return
	}
	saved(w, each.ID+"-"+name)
	_, _ = io.CopyN(w, file, info.Size()) // the browser may have gone
}

// saved makes an answer a file that the browser saves and does not show. The name has to be plain.
func saved(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

// isText reports whether bytes look like text.
func isText(content []byte) bool {
	if strings.ContainsRune(string(content), 0) {
		return false
	}
	for cut := 0; cut < utf8.UTFMax && cut <= len(content); cut++ { // the end may cut a character
		if utf8.Valid(content[:len(content)-cut]) {
			return true
		}
	}
	return false
}
