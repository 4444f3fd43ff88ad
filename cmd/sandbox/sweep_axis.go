package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/evalbox/evalbox/harness/invoke/sweep"
)

// axisFlag is a list of axes, one for each flag.
type axisFlag struct{ target *[]sweep.Axis }

func (f *axisFlag) String() string { return "" }

func (f *axisFlag) Type() string { return "NAME=V,V..." }

func (f *axisFlag) Set(text string) error {
	axis, err := parseAxis(text)
	if err == nil {
		*f.target = append(*f.target, axis)
	}
	return err
}

// parseAxis reads NAME=V,V... or NAME=[JSON list]. What is no JSON is a text.
func parseAxis(text string) (sweep.Axis, error) {
	name, rest, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return sweep.Axis{}, errors.New("must be NAME=V,V..., as in brightness=0.8,1.0")
	}
	rest = strings.TrimSpace(rest)
	axis := sweep.Axis{Name: name}
	if strings.HasPrefix(rest, "[") {
		values, ok := readJSON(rest)
		if axis.Values, _ = values.([]any); !ok {
			return sweep.Axis{}, errors.New("what begins with [ must be a JSON list")
		}
		return axis, nil
	}
	for part := range strings.SplitSeq(rest, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			return sweep.Axis{}, errors.New(`has an empty value; an empty text is NAME=[""]`)
		}
		value, ok := readJSON(part)
		if !ok {
			value = part
		}
		axis.Values = append(axis.Values, value)
	}
	return axis, nil
}

// readJSON reads one value, numbers in their spelling.
func readJSON(text string) (value any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return nil, false
	}
	_, err := decoder.Token()
	return value, errors.Is(err, io.EOF)
}
