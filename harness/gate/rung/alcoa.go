package rung

import "encoding/json"

// ALCOA is how far a bundle is what the ALCOA+ principles ask of records: one point for
// each that it meets (RO-15). A bundle whose content was changed loses one point only and
// can still be compliant; [VerifyChain] says whether it was.
type ALCOA struct {
	// Score is 0 to 9; a bundle is Compliant from 7 on.
	Score     int  `json:"score"`
	Compliant bool `json:"compliant"`
	// Gaps are the principles that are not met, with the reason.
	Gaps []string `json:"gaps"`
}

// compliantFrom is the score from which a bundle is compliant.
const compliantFrom = 7

// Score judges one bundle. It reads an object that need not have all keys.
func Score(text []byte) (ALCOA, error) {
	o, err := parseObject(text)
	if err != nil {
		return ALCOA{}, err
	}
	filled := func(key string) bool {
		value, ok := as[string](o, key)
		return ok && value != ""
	}
	artifacts, isObject := as[map[string]json.RawMessage](o, "artifacts")
	position, isPlace := as[int](o, "chain_position")
	_, complete := o.has("bundle_id", "service_id", "action", "timestamp", "artifacts", "content_hash", "prev_hash")
	a := ALCOA{Gaps: []string{}}
	for _, principle := range []struct {
		met bool
		gap string
	}{
		{filled("service_id"), "attributable: there is no service_id"},
		{isObject && len(artifacts) > 0, "legible: there are no artifacts"},
		{filled("timestamp"), "contemporaneous: there is no timestamp"},
		{filled("content_hash"), "original: there is no content_hash"},
		{filled("prev_hash"), "accurate: there is no prev_hash"},
		{complete, "complete: a key is missing"},
		{consistent(o), "consistent: content_hash is not that of the content"},
		{isPlace && position >= 0, "enduring: there is no chain_position"},
		{filled("bundle_id"), "available: there is no bundle_id"},
	} {
		if principle.met {
			a.Score++
		} else {
			a.Gaps = append(a.Gaps, principle.gap)
		}
	}
	a.Compliant = a.Score >= compliantFrom
	return a, nil
}

// consistent says that the hash is that of the content, with null for what is not there.
func consistent(o object) bool {
	content := map[string]any{}
	for _, key := range []string{"service_id", "action", "timestamp", "artifacts", "prev_hash"} {
		content[key] = o[key]
		if _, there := o[key]; !there {
			content[key] = nil
		}
	}
	hash, err := contentHash(content)
	told, ok := as[string](o, "content_hash")
	return err == nil && ok && told == hash
}
