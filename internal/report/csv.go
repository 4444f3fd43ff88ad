package report

import (
	"bytes"
	"encoding/csv"
	"math"
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
				record = append(record, digits(*c.Number))
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

// digits is a number with all its digits. A whole one has no exponent.
func digits(v float64) string {
	const exact = 1 << 53
	if v == math.Trunc(v) && math.Abs(v) < exact {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// value is an untrusted text as a value.
func value(s string) string {
	begins := func(s, with string) bool { return s != "" && strings.ContainsRune(with, rune(s[0])) }
	formula := begins(s, "=+-@\t\r\n")
	s = lineOf(s, maxValue)
	_, err := strconv.ParseFloat(s, 64)
	isNumber := err == nil && strings.Trim(s, "0123456789.eE+-") == ""
	if !isNumber && (formula || begins(s, "=+-@")) {
		return "'" + s
	}
	return s
}
