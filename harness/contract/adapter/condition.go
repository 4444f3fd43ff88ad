package adapter

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/result"
)

// parseCondition reads the condition of a fallback.
func parseCondition(condition string) (func(contract.Outcome) bool, error) {
	switch condition {
	case "", "any":
		return func(contract.Outcome) bool { return true }, nil
	case "timeout":
		return func(o contract.Outcome) bool { return o.TimedOut }, nil
	case "unavailable":
		return unavailable, nil
	}
	var codes []int
	for part := range strings.SplitSeq(condition, ",") {
		code, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil {
			return nil, errors.New(`must be any, timeout, unavailable, or codes such as "429,503"`)
		}
		codes = append(codes, code)
	}
	return func(o contract.Outcome) bool {
		return o.Call != nil && o.Call.Code != nil && slices.Contains(codes, *o.Call.Code)
	}, nil
}

// unavailable reports whether the tool could not be called at all.
func unavailable(o contract.Outcome) bool {
	return o.Call != nil && o.Call.Unsent || o.Status == contract.StatusBlocked || o.Status == result.StatusStartFailed.String()
}
