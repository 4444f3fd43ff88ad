package collect

import (
	"encoding/base64"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EncodePath renders a file name as text. A name that is clean UTF-8 stands for
// itself. Any other, with invalid bytes, control characters, backslashes or
// invisible format characters, is escaped reversibly as in a Go string literal,
// and raw then holds its bytes in base64.
func EncodePath(name string) (text, raw string) {
	clean := utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '\\' || r == unicode.ReplacementChar || !unicode.IsPrint(r)
	})
	if clean {
		return name, ""
	}
	quoted := strconv.QuoteToGraphic(name)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`), base64.StdEncoding.EncodeToString([]byte(name))
}
