// Package result holds how a run ended and what its streams say: the wire form
// [Result], the enums [Status] and [Fault], and the pure parsers that find a
// score and a traceback in the output of a program.
//
// The package uses the standard library only, does no I/O, and every parser
// takes linear time on any input.
package result
