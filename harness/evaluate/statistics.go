package evaluate

import (
	"math"
	"slices"
)

// Statistics sum up the scores of repeated runs.
type Statistics struct {
	// Count is the number of scores; runs without a finite one do not count.
	Count int `json:"count"`
	// Mean is their arithmetic mean; nil without a score.
	Mean *float64 `json:"mean"`
	// Deviation is their sample standard deviation, with Count-1 in the
	// denominator; nil below two scores, and when it or a bound of the interval is too
	// large for a finite number.
	Deviation *float64 `json:"deviation"`
	// Low and High are the 95 % confidence interval of the mean after Student's t
	// distribution; nil when Deviation is.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
}

// Summarize computes the statistics of scores. Values that are NaN or infinite are
// left out.
func Summarize(scores []float64) Statistics {
	var finite []float64
	for _, score := range scores {
		if isFinite(score) {
			finite = append(finite, score)
		}
	}
	s := Statistics{Count: len(finite)}
	if s.Count == 0 {
		return s
	}
	// Scaled to at most 1, no step leaves the range of finite numbers.
	n := float64(s.Count)
	scale := 0.0
	for _, score := range finite {
		scale = max(scale, math.Abs(score))
	}
	if scale == 0 {
		scale = 1
	}
	mean := 0.0
	for i, score := range finite {
		mean += (score/scale - mean) / float64(i+1)
	}
	s.Mean = new(within(mean*scale, finite))
	if s.Count == 1 {
		return s
	}
	sum := 0.0
	for _, score := range finite {
		part := score/scale - mean
		sum += part * part
	}
	deviation := scale * math.Sqrt(sum/(n-1))
	half := studentT975(s.Count-1) * deviation / math.Sqrt(n)
	low, high := *s.Mean-half, *s.Mean+half
	for _, value := range []float64{deviation, low, high} {
		if !isFinite(value) {
			return s
		}
	}
	s.Deviation, s.Low, s.High = &deviation, &low, &high
	return s
}

// within keeps a rounded mean between the smallest and the largest score.
func within(mean float64, scores []float64) float64 {
	return min(max(mean, slices.Min(scores)), slices.Max(scores))
}

// studentT975 is the t below which 97.5 % of Student's t distribution with df
// degrees of freedom lie. It inverts the distribution function by bisection.
func studentT975(df int) float64 {
	low, high := 0.0, math.Pi/2
	for range 200 {
		middle := (low + high) / 2
		if middle == low || middle == high {
			break
		}
		if studentCentral(middle, df) < 0.95 {
			low = middle
		} else {
			high = middle
		}
	}
	return math.Tan(low) * math.Sqrt(float64(df))
}

// studentCentral is the probability that |t| is below sqrt(df) tan(theta), in the
// finite sums of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3
// (odd df) and 26.7.4 (even df).
func studentCentral(theta float64, df int) float64 {
	sin, cos := math.Sincos(theta)
	odd := df%2 == 1
	if df == 1 {
		return 2 * theta / math.Pi
	}
	term, first := 1.0, 2
	if odd {
		term, first = cos, 3
	}
	sum := term
	for k := first; k <= df-2; k += 2 {
		// even: 1 + (1/2) cos² + (1·3)/(2·4) cos⁴ …; odd: cos + (2/3) cos³ + …
		term *= cos * cos * float64(k-1) / float64(k)
		sum += term
	}
	if odd {
		return 2 / math.Pi * (theta + sin*sum)
	}
	return sin * sum
}
