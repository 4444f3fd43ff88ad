// Package fsx handles files that an untrusted program, or another user of the machine, may
// have made or may be changing: it opens, walks, copies, deletes and locks them. Nothing
// here follows a link on the way, waits for another process, or recurses deeper than a
// bounded number of descriptors.
package fsx
