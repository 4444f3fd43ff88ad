package rung

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// pythonJSON writes a JSON text anew as Python's json.dumps does with sorted keys: in
// ASCII, with a space after commas and colons, and numbers in Python's notation.
func pythonJSON(text []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err := writePython(&out, tree)
	return out.Bytes(), err
}

func writePython(out *bytes.Buffer, tree any) error {
	switch v := tree.(type) {
	case nil:
		out.WriteString("null")
	case bool:
		out.WriteString(strconv.FormatBool(v))
	case string:
		writePythonString(out, v)
	case json.Number:
		number, err := pythonNumber(v.String())
		if err != nil {
			return err
		}
		out.WriteString(number)
	case []any:
		out.WriteByte('[')
		for i, inner := range v {
			if i > 0 {
				out.WriteString(", ")
			}
			if err := writePython(out, inner); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	case map[string]any:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		out.WriteByte('{')
		for i, key := range keys {
			if i > 0 {
				out.WriteString(", ")
			}
			writePythonString(out, key)
			out.WriteString(": ")
			if err := writePython(out, v[key]); err != nil {
				return err
			}
		}
		out.WriteByte('}')
	default:
		return fmt.Errorf("JSON has a value of the type %T", tree)
	}
	return nil
}

func writePythonString(out *bytes.Buffer, s string) {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}
	out.WriteByte('"')
	for _, r := range s {
		switch {
		case short[r] != "":
			out.WriteString(short[r])
		case r >= 0x20 && r < 0x7f:
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(out, `\u%04x`, r)
		}
	}
	out.WriteByte('"')
}

// maxDigits is how long a whole number is that Python reads.
const maxDigits = 4300

// pythonNumber is a number as Python writes it after reading it: whole ones of any size
// as they are, others by the shortest text, with an exponent below 1e-04 and from 1e+16.
func pythonNumber(text string) (string, error) {
	if !strings.ContainsAny(text, ".eE") {
		whole, ok := new(big.Int), len(text) <= maxDigits
		if ok {
			_, ok = whole.SetString(text, 10)
		}
		if !ok {
			return "", fmt.Errorf("%.40q is no number", text)
		}
		return whole.String(), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return "", fmt.Errorf("the number %.40s has no finite value", text)
	}
	scientific := strconv.FormatFloat(f, 'e', -1, 64)
	_, exponent, _ := strings.Cut(scientific, "e")
	if e, err := strconv.Atoi(exponent); err == nil && e >= -4 && e < 16 {
		plain := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(plain, ".") {
			plain += ".0"
		}
		return plain, nil
	}
	return scientific, nil
}
