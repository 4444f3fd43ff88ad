package sweep

import (
	"bytes"
	"encoding/json"
)

// duplicateKey is the first key that an object of valid JSON has twice. Of its values a
// decoder takes one without a word, and which one depends on the decoder.
func duplicateKey(text []byte) (key string, twice bool) {
	type level struct {
		keys  map[string]bool // nil in a list
		value bool            // what comes is the value of a key
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var open []level
	for {
		token, err := decoder.Token()
		if err != nil {
			return "", false // the end
		}
		if delim, is := token.(json.Delim); is && (delim == '}' || delim == ']') {
			open = open[:len(open)-1]
			continue
		}
		if last := len(open) - 1; last >= 0 && open[last].keys != nil {
			at := &open[last]
			if name, isKey := token.(string); isKey && !at.value {
				if at.keys[name] {
					return name, true
				}
				at.keys[name], at.value = true, true
				continue
			}
			at.value = false
		}
		switch token {
		case json.Delim('{'):
			open = append(open, level{keys: map[string]bool{}})
		case json.Delim('['):
			open = append(open, level{})
		}
	}
}
