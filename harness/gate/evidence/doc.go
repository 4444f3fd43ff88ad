// Package evidence holds the files between the nodes of a gate: their names, their
// types, how they are written and read, and their hashes.
//
// A gate directory is self-contained: whoever has it can judge it again, also where the
// gate did not run. All documents are JSON with sorted keys and no floating-point
// numbers, so that equal facts are equal bytes (RO-08). Nothing in them is trusted when
// they are read: sizes are bounded, unknown keys are kept out of the judgement, and
// every file is compared with its hash.
package evidence
