package text

import (
	"strconv"
	"time"

	"github.com/docker/go-units"
)

// Size returns a number of bytes, such as "10.09 MiB".
func Size(bytes int64) string {
	return units.CustomSize("%.4g %s", float64(bytes), 1024, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"})
}

// Seconds returns a duration, such as "1.23s" or "1m15s".
func Seconds(seconds float64) string {
	switch {
	case seconds < 10:
		return strconv.FormatFloat(seconds, 'f', 2, 64) + "s"
	case seconds < 60:
		return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// Number returns a number with all its digits.
func Number(n float64) string { return strconv.FormatFloat(n, 'g', -1, 64) }

// Fit returns at most limit characters of a text for display; "…" replaces the rest.
func Fit(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return text
}

// Most is the number of characters of a [Brief] text at most.
const Most = 200

// Brief returns the beginning of a text, on one line.
func Brief(text string) string { return Fit(OneLine(text), Most) }
