package said

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBound(t *testing.T) {
	long := strings.Repeat("ä", 10_000)
	for name, test := range map[string]struct {
		status int
		body   string
		want   string // an expression
	}{
		"short":          {500, `{"message":"no","code":7}`, `^\{"code":7,"message":"no"\}$`},
		"long":           {409, `{"message":"begin ` + long + ` end","code":7}`, `^\{"code":7,"message":"begin ä+\[… 19\d{3} bytes left out …\]ä+ end"\}$`},
		"another case":   {409, `{"Message":"` + long + `"}`, `^\{"Message":"ä+\[… .* bytes left out …\]ä+"\}$`},
		"text":           {502, "<html>" + long + "</html>\n", `^<html>ä+\[… \d+ bytes left out …\]ä+</html>\n$`},
		"no object":      {500, `["` + long + `"]`, `^\["ä+\[… \d+ bytes left out …\]ä+"\]$`},
		"broken JSON":    {500, `{"message":"` + long, `^\{"message":"ä+\[… \d+ bytes left out …\]ä+$`},
		"without end":    {500, strings.Repeat("x", 2*maxBody), `^x+\[… 104\d{4} bytes left out …\]x+$`},
		"another answer": {200, long, `^ä{10000}$`},
		"nothing":        {500, "", `^$`},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.status)
			_, _ = io.WriteString(w, test.body)
		}))
		client := http.Client{Transport: Bound(http.DefaultTransport)}
		resp, err := client.Get(server.URL) //nolint:noctx // a test
		require.NoError(t, err, name)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err, name)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, test.status, resp.StatusCode, name)
		if resp.StatusCode >= 400 {
			require.LessOrEqual(t, len(body), most+100, name)
		}
		if len(body) < 100_000 {
			require.Regexp(t, strings.ReplaceAll(test.want, "ä{10000}", "ä+"), string(body), name)
		}
		server.Close()
	}
}
