package report

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"html/template"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/internal/plot"
)

var attacks = []string{
	`</script></style></title><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, "]]><svg onload=alert(1)>", "javascript:alert(1)",
	"<!--<script>", "{{.Policy}}", "\x00\x07\x1b[2J\x1b]0;x\x07\u202e\u2066evil\u2028\u200b", "`code` ``` ~~~\n```\n<b>x</b>\n", "|a|b\\|c|\n|---|", "[x](javascript:alert(1)) ![x](http://x/y.png) @team www.x.y https://x.y",
	"# heading\n- list\n1. one\n> quote\n---", "**bold** _em_ ~~x~~ $x^2$ &lt;", "=cmd|'/c calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\xff\xfe\x80", strings.Repeat("<x>=\n", 200_000),
}

// fill sets every text that can be set, in every slice, map and pointer.
func fill(v reflect.Value, s string, depth int) {
	if depth == 0 || !v.CanSet() || v.Type() == reflect.TypeFor[template.HTML]() {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(s))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), s, depth)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), s, depth-1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, s, depth-1)
		fill(value, s, depth-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), s, depth-1)
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	default:
		if v.CanInt() {
			v.SetInt(1)
		} else if v.CanUint() {
			v.SetUint(1) // the first value of an enum
		}
	}
}

func filled[T any](s string) (all T) {
	fill(reflect.ValueOf(&all).Elem(), s, 9)
	return all
}

// hostileDocuments are all kinds of documents with one text in every field.
func hostileDocuments(s string) map[string]Document {
	b := filled[Batch](s)
	for i := range b.Results {
		b.Results[i].Run.ID = s
	}
	b.Direction = evaluate.Maximize
	run := filled[Run](s)
	run.Result.StartedAt, run.Result.FinishedAt = "2026-01-01T00:00:00Z", "2026-01-01T00:00:02Z"
	b.Runs = map[string]Run{s: run}
	swept := filled[Sweep](s)
	swept.Runs[0].Status = sweep.StatusSucceeded
	for i, a := range swept.Config.Axes {
		swept.Config.Axes[i].Name = fmt.Sprintf("%s%d", a.Name, i)
	}
	plain := filled[Document](s)
	plain.Sections[0].Plots = []template.HTML{plot.Lines(plot.Frame{Title: s}, nil)}
	return map[string]Document{
		"batch": BatchDocument(b), "comparison": CompareDocument(b, filled[Batch](s)), "run": RunDocument(run), "sweep": SweepDocument(swept),
		"gate": GateDocument(filled[Gate](s)), "document": plain, "run without a result": RunDocument(Run{Record: run.Record, Curves: run.Curves}),
	}
}

func TestHostileTexts(t *testing.T) {
	for i, s := range attacks {
		for name, d := range hostileDocuments(s) {
			t.Run(fmt.Sprintf("%s %d", name, i), func(t *testing.T) {
				requirePage(t, d.HTML())
				requireMarkdown(t, d.Markdown())
				requireCSV(t, d.CSV())
			})
		}
	}
}

var allowed = map[string][]string{
	"html": {"lang"}, "head": nil, "body": nil, "meta": {"charset", "http-equiv", "content", "name"}, "title": nil, "style": nil, "script": nil, "header": nil, "main": nil,
	"nav": {"aria-label"}, "ul": {"class"}, "li": {"class"}, "a": {"href"}, "h1": nil, "h2": {"id"}, "h3": nil, "p": {"class"}, "section": {"id", "aria-labelledby"},
	"dl": {"class"}, "dt": nil, "dd": nil, "div": {"class", "tabindex", "role", "aria-label"}, "table": {"class"}, "caption": nil, "thead": nil, "tbody": nil, "tr": nil,
	"th": {"scope"}, "td": {"class", "data-key"}, "code": {"class"}, "span": {"class"}, "pre": {"tabindex"}, "details": nil, "summary": nil, "figure": {"class"}, "figcaption": nil,
	"svg": {"class", "role", "aria-label", "width", "height", "viewBox"}, "desc": nil, "g": {"class"}, "path": {"class", "d"}, "circle": {"class", "cx", "cy", "r"},
	"rect": {"class", "x", "y", "width", "height", "fill-opacity"}, "text": {"class", "x", "y", "text-anchor", "transform"},
}

// requirePage parses a page as a browser does: no element, attribute, address or script beyond those
// of reports.
func requirePage(t *testing.T, page []byte) {
	t.Helper()
	require.Less(t, len(page), 2<<20)
	root, err := html.Parse(strings.NewReader(string(page)))
	require.NoError(t, err)
	var policy, style, script string
	var each func(n *html.Node)
	each = func(n *html.Node) {
		switch n.Type {
		case html.CommentNode:
			require.Fail(t, "a comment", n.Data)
		case html.TextNode:
			require.NotContains(t, n.Data, "\u202e")
			require.NotContains(t, n.Data, "\x1b")
		case html.ElementNode:
			attributes, there := allowed[n.Data]
			require.True(t, there, "element %s", n.Data)
			for _, a := range n.Attr {
				require.Contains(t, attributes, a.Key, "attribute of %s", n.Data)
				require.Empty(t, a.Namespace)
				if a.Key == "href" {
					require.Regexp(t, `^#part-\d+$`, a.Val)
				}
				if a.Key == "class" {
					require.Regexp(t, `^[a-z0-9 ]+$`, a.Val)
				}
				if a.Key == "content" && strings.Contains(a.Val, "default-src") {
					policy = a.Val
				}
			}
			switch n.Data {
			case "style":
				require.Empty(t, style)
				style = n.FirstChild.Data
			case "script":
				require.Empty(t, script)
				script = n.FirstChild.Data
			}
		case html.ErrorNode, html.DocumentNode, html.DoctypeNode, html.RawNode:
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			each(c)
		}
	}
	each(root)
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	require.Equal(t, "default-src 'none'; style-src "+hash(style)+"; script-src "+hash(script)+"; base-uri 'none'; form-action 'none'", policy)
	require.Equal(t, plot.CSS+pageStyle, style)
	require.Equal(t, strings.TrimSpace(pageScript), script)
}

// withoutSpans is a line without its code spans, by the rule of CommonMark: a run of backticks ends at
// the next run of the same length.
func withoutSpans(t *testing.T, l string) string {
	t.Helper()
	rest := ""
	for l != "" {
		at := strings.IndexByte(l, '`')
		if at < 0 {
			return rest + l
		}
		rest += l[:at]
		l = l[at:]
		fence := l[:len(l)-len(strings.TrimLeft(l, "`"))]
		end := -1
		for from := len(fence); from < len(l); {
			next := strings.IndexByte(l[from:], '`')
			if next < 0 {
				break
			}
			from += next
			run := len(l[from:]) - len(strings.TrimLeft(l[from:], "`"))
			if run == len(fence) {
				end = from
				break
			}
			from += run
		}
		require.Positive(t, end, "a span of %q does not end", l)
		l = l[end+len(fence):]
	}
	return rest
}

// requireMarkdown checks that outside of code nothing but the document's own marks is there.
func requireMarkdown(t *testing.T, page []byte) {
	t.Helper()
	require.Less(t, len(page), 2<<20)
	fence, columns := "", 0
	for l := range strings.SplitSeq(string(page), "\n") {
		require.NotContains(t, l, "\x1b")
		if fence != "" {
			if l == fence {
				fence = ""
			}
			continue
		}
		if open, ok := strings.CutSuffix(l, "text"); ok && strings.HasPrefix(open, "```") && strings.Trim(open, "`") == "" {
			fence = open
			continue
		}
		rest := withoutSpans(t, l)
		if strings.HasPrefix(l, "| ") {
			cells := strings.Count(strings.ReplaceAll(l, `\|`, ""), "|")
			require.True(t, columns == 0 || columns == cells, "the row %q has %d bars, and the first has %d", l, cells, columns)
			columns = cells
		} else if !strings.HasPrefix(l, "|") {
			columns = 0
		}
		if strings.HasPrefix(rest, "| ") {
			rest = strings.NewReplacer("| ", "", " |", "", "|", "").Replace(rest)
		}
		rest = strings.ReplaceAll(strings.TrimLeft(rest, "#"), "**", "")
		if strings.Trim(rest, "-|") == "" {
			continue
		}
		require.NotRegexp(t, "[`*_<>\\[\\]\\\\$]|://|www\\.|@", rest, l)
	}
	require.Empty(t, fence)
}

func requireCSV(t *testing.T, text []byte) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	require.NoError(t, err)
	for _, v := range slices.Concat(rows...) {
		if _, err := strconv.ParseFloat(v, 64); v != "" && err != nil {
			require.NotContains(t, "=+-@\t\r\n", v[:1], v)
		}
	}
}

// TestEveryFieldIsFilled guards the test above: a text of each field is in one of the documents.
func TestEveryFieldIsFilled(t *testing.T) {
	const word = "wordwordword"
	for name, d := range hostileDocuments(word) {
		require.Contains(t, string(d.HTML()), word, name)
		require.Contains(t, string(d.Markdown()), word, name)
	}
	require.Equal(t, word, *filled[evaluate.Result](word).ErrorTraceback)
}
