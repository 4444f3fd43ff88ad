// Package sweep runs a command line over axes of values and over seeds, each combination
// in a folder of its own (MI-08 to MI-11).
//
// [NewPlan] decides everything: the order of the runs, the names of their folders, what
// stands in each one's spec. It does no I/O and refuses what cannot be told apart. [Run]
// carries a plan out, and goes on with one that was interrupted. What a run does is
// the caller's: an [Invoke].
//
// Nothing here reads the clock or a random number. The sweep's manifest holds nothing but
// what was asked for and the hashes of what the tool wrote, so it is the same, byte for
// byte, however many runs went on at once.
package sweep
