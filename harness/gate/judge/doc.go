// Package judge is node 5 of a gate: it turns the evidence into a verdict and into the
// file from which the same can be run again.
//
// [Judge] is a pure function of what [Load] read. It looks for reasons against a pass and
// passes only what has none: evidence that is missing, unclear or in contradiction with
// itself is such a reason. It needs nothing of the machine that the gate ran on.
package judge
