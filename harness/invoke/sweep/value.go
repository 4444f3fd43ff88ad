package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// normal is a value in the form that is written: nil, bool, string, or a json.Number that
// is spelled as Python spells it.
func normal(value any) (any, error) {
	switch v := value.(type) {
	case nil, bool:
		return v, nil
	case string:
		if len(v) > maxText {
			return nil, fmt.Errorf("has more than %d bytes", maxText)
		}
		if !utf8.ValidString(v) {
			return nil, errors.New("is not UTF-8")
		}
		return v, nil
	case int:
		return json.Number(strconv.Itoa(v)), nil
	case int64:
		return json.Number(strconv.FormatInt(v, 10)), nil
	case float64:
		return floatNumber(v)
	case json.Number:
		return normalNumber(v)
	}
	return nil, fmt.Errorf("is %s; a value is a text, a number, true, false or null", kindOf(value))
}

// kindOf says what a value is that can be none, in the words of JSON if it has them.
func kindOf(value any) string {
	switch value.(type) {
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("of type %T", value)
}

// normalNumber reads a number as Python's json does: with a point or an exponent it is a
// float.
func normalNumber(n json.Number) (any, error) {
	text := string(n)
	if len(text) > maxText || !isNumber(text) {
		return nil, fmt.Errorf("%s is no number", shown(text))
	}
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s does not fit into a float", shown(text))
		}
		return floatNumber(f)
	}
	if text == "-0" {
		return json.Number("0"), nil
	}
	return n, nil
}

// isNumber says that a text is a number of JSON.
func isNumber(text string) bool {
	return text != "" && (text[0] == '-' || '0' <= text[0] && text[0] <= '9') && json.Valid([]byte(text)) &&
		strings.TrimSpace(text) == text
}

func floatNumber(f float64) (any, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, errors.New("is not finite")
	}
	return json.Number(floatText(f)), nil
}

// floatText is a finite float as Python's repr has it: the shortest digits that read back
// as the same float, with a point or an exponent.
func floatText(f float64) string {
	scientific := strconv.FormatFloat(f, 'e', -1, 64)
	_, exponent, _ := strings.Cut(scientific, "e")
	if e, err := strconv.Atoi(exponent); err == nil && (e < -4 || e >= 16) {
		return scientific
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}
