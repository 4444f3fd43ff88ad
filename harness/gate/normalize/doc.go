// Package normalize makes logs of two runs of the same thing equal (RT-06, RT-12, RO-08),
// and finds what may still keep them apart.
//
// [Normalizer] replaces what changes from run to run (times, durations, process IDs,
// addresses, temporary paths, names of machines) with visible placeholders such as
// <time>, by rules that have names and are counted. What tests say stays: their names,
// numbers, scores, versions, and the values of assertions. Normalizing twice changes
// nothing. [Detect] finds what no rule took and still looks as if it changed.
//
// [Evidence] is node 3 of a gate: it makes the normalized log, the test cases and the
// observations from the raw files of node 2.
package normalize
