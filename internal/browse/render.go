package browse

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/internal/plot"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/sandbox/record"
)

//go:embed templates/*.html static/*
var files embed.FS

// templates are parsed at their first use: other commands do not pay for them.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"size": text.Size, "seconds": text.Seconds, "number": text.Number, "short": func(most int, s string) string { return text.Fit(s, most) },
		"labels": render.Labels, "shortID": record.ShortID, "join": strings.Join,
		"time":  func(at time.Time) string { return at.Local().Format(time.DateTime) },
		"stamp": func(at time.Time) string { return at.UTC().Format(time.RFC3339) },
	}).ParseFS(files, "templates/*.html"))
})

// page is what every page has.
type page struct {
	Title string
	// Nav is the section that the page belongs to.
	Nav string
	// Live is the path of its live updates; empty for none.
	Live string
	// Control says that changes are permitted, and CSRF is the proof of the forms.
	Control bool
	CSRF    string
	Body    any
}

// show answers with a page. Nothing is sent before all of it is made.
func (s *Server) show(w http.ResponseWriter, r *http.Request, code int, name string, p page) {
	if p.Control = s.Control != nil; p.Control {
		p.CSRF = s.guard.csrf(r)
	}
	html, err := fragment(name, p)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "This page cannot be made: "+terminal.Line(err.Error()))
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(html)) // the browser may have gone
}

// missing answers that something is not there.
func (s *Server) missing(w http.ResponseWriter, r *http.Request, what string) {
	s.show(w, r, http.StatusNotFound, "missing", page{Title: "Not here", Body: what})
}

// fragment makes HTML. Characters that control or reorder text are visible in it, wherever they
// come from: none of them is markup.
func fragment(name string, data any) (string, error) {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, data); err != nil {
		return "", err
	}
	return terminal.Text(b.String()), nil
}

// updateOf is an update with a fragment; a fragment that cannot be made says so.
func updateOf(target, name string, data any) update {
	html, err := fragment(name, data)
	if err != nil {
		html = template.HTMLEscapeString(terminal.Line(err.Error()))
	}
	return update{Target: target, HTML: html}
}

// static answers with a file of the program.
func static(w http.ResponseWriter, r *http.Request) {
	types := map[string]string{"browse.css": "text/css; charset=utf-8", "browse.js": "text/javascript; charset=utf-8"}
	kind, known := types[r.PathValue("name")]
	if !known {
		refuse(w, http.StatusNotFound, "This file is not here.")
		return
	}
	content, _ := files.ReadFile("static/" + r.PathValue("name")) // it is embedded
	if r.PathValue("name") == "browse.css" {
		content = append(content, plot.CSS...)
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(content)
}
