// Package manifest is node 1 of a gate: it decides what is run, from a sealed wish, what
// git says, the flags and the policy of the machine (RT-10). It is pure. What it decides
// is all that node 2 sees; what speaks against running at all are findings.
package manifest
