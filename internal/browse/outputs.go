package browse

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // their sizes
	_ "image/jpeg"
	_ "image/png"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Bounds of the preview of an output.
const (
	maxPreview   = 32 << 20 // of the whole file, whose hash is checked
	maxText      = 256 << 10
	maxPicture   = 8 << 20
	maxPixels    = 40_000_000
	maxCSVRows   = 500
	maxCSVFields = 50
	maxCSVCell   = 300
)

// pictures are the types that are shown. All others are text or nothing, whatever their names say:
// SVG and HTML are programs.
var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// fileView is the page of one output.
type fileView struct {
	result.Output
	Run     string
	N       int
	Problem string
	Picture bool
	Text    string
	// Cut says that the text or the table is only the beginning.
	Cut   bool
	Table [][]string
}

// errTooLong and errChanged are why an output has no preview.
var (
	errTooLong = fmt.Errorf("the file is longer than %s, and has no preview", text.Size(maxPreview))
	errChanged = errors.New("the file is not the one that the run left: its content has changed")
)

// output finds an output of a finished run by its number, and answers if there is none.
func (s *Server) output(w http.ResponseWriter, r *http.Request) (each record.Record, n int, ok bool) {
	if each, ok = s.load(w, r); !ok {
		return each, 0, false
	}
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil || each.Result == nil || n < 0 || n >= len(each.Result.Outputs) {
		s.missing(w, r, "The run has no output with this number.")
		return each, 0, false
	}
	return each, n, true
}

// readOutput reads an output. It follows no link, and returns nothing but what the run left.
func readOutput(each record.Record, out result.Output) ([]byte, error) {
	if out.SizeBytes > maxPreview {
		return nil, errTooLong
	}
	name := filepath.FromSlash(out.Path)
	if raw, err := base64.StdEncoding.DecodeString(out.PathBase64); err == nil && len(raw) > 0 {
		name = string(raw)
	}
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%q is not a path in ./final", out.Path)
	}
	root, err := fsx.OpenRoot(each.OutputDir())
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, _, err := fsx.OpenBelow(root, name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, out.SizeBytes+1))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != out.SHA256 {
		return nil, errChanged
	}
	return content, nil
}

// preview bounds the requests that hold an output in memory.
func (s *Server) preview(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s.previews <- struct{}{}:
			defer func() { <-s.previews }()
			handle(w, r)
		case <-r.Context().Done():
		}
	}
}

func (s *Server) filePage(w http.ResponseWriter, r *http.Request) {
	each, n, ok := s.output(w, r)
	if !ok {
		return
	}
	v := fileView{Output: each.Result.Outputs[n], Run: each.ID, N: n}
	content, err := readOutput(each, v.Output)
	switch {
	case err != nil:
		v.Problem = fsx.Cause(err).Error()
	case pictureOf(content) != "":
		v.Picture = true
	case !isText(content):
		v.Problem = "the file is neither text nor a picture that is shown here"
	default:
		v.preview(content)
	}
	s.show(w, r, http.StatusOK, "file", page{Title: v.Path, Nav: "runs", Body: v})
}

// preview fills in the text or the table.
func (v *fileView) preview(content []byte) {
	if v.Cut = len(content) > maxText; v.Cut {
		content = content[:maxText]
	}
	comma := map[string]rune{".csv": ',', ".tsv": '\t'}[strings.ToLower(filepath.Ext(v.Path))]
	if comma == 0 {
		v.Text = strings.ToValidUTF8(string(content), "�")
		return
	}
	rows := csv.NewReader(bytes.NewReader(content))
	rows.Comma, rows.FieldsPerRecord, rows.LazyQuotes = comma, -1, true
	for {
		row, err := rows.Read()
		if err != nil {
			break
		}
		if len(v.Table) == maxCSVRows {
			v.Cut = true
			break
		}
		if len(row) > maxCSVFields {
			row, v.Cut = row[:maxCSVFields], true
		}
		for i := range row {
			row[i] = text.Fit(row[i], maxCSVCell)
		}
		v.Table = append(v.Table, row)
	}
}

// pictureOf is the type of a picture that is shown, by its content; empty for anything else. One
// that would fill the memory of a browser is none.
func pictureOf(content []byte) string {
	kind := http.DetectContentType(content)
	if !slices.Contains(pictures, kind) || len(content) > maxPicture {
		return ""
	}
	if config, _, err := image.DecodeConfig(bytes.NewReader(content)); kind != "image/webp" && (err != nil || config.Width*config.Height > maxPixels) {
		return ""
	}
	return kind
}

func (s *Server) picture(w http.ResponseWriter, r *http.Request) {
	each, n, ok := s.output(w, r)
	if !ok {
		return
	}
	content, err := readOutput(each, each.Result.Outputs[n])
	kind := pictureOf(content)
	if err != nil || kind == "" {
		s.missing(w, r, "The output is not a picture that is shown here.")
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	_, _ = w.Write(content)
}
