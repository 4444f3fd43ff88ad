package report

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"strings"
)

// maxValue bounds a value of a CSV, in characters.
const maxValue = 2000

// CSV is the table [Document.Data], with a row of names. Numbers have all digits. A text that a
// spreadsheet would take for a formula begins with an apostrophe.
func (d Document) CSV() []byte {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	record := make([]string, 0, len(d.Data.Columns))
	write := func() {
		_ = w.Write(record) // a buffer takes everything
		record = record[:0]
	}
	for _, name := range d.Data.Columns {
		record = append(record, value(name))
	}
	write()
	for _, row := range d.Data.Rows {
		for _, c := range row {
			switch {
			case c.Number != nil:
				record = append(record, strconv.FormatFloat(*c.Number, 'g', -1, 64))
			case c.Text == absent.Text:
				record = append(record, "")
			default:
				record = append(record, value(c.Text))
			}
		}
		write()
	}
	w.Flush()
	return out.Bytes()
}

// value is an untrusted text as a value.
func value(s string) string {
	formula := s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0]))
	s = lineOf(s, maxValue)
	if _, err := strconv.ParseFloat(s, 64); s == "" || err == nil && !strings.ContainsAny(s, "xX_") {
		return s
	}
	if formula || strings.ContainsRune("=+-@", rune(s[0])) {
		return "'" + s
	}
	return s
}
