// Package rung checks evidence directories that other tools made: the layout of eleven
// files (RO-06, RO-07, RO-11), the smaller one of three that a validator of rungs reads
// (RO-13), and chains of hashed bundles (RO-15).
//
// A rung is how much is claimed: 641 that it works here, 274177 that it is stable, 65537
// that it can be promoted (RO-10). Where those tools look at the shape of a file only,
// this package looks at what it says: a run that failed is not verified, null is no hash,
// and false is no zero. All functions are pure but for reading the file system that they
// are given; nothing in it is followed, and every file is bounded.
package rung
