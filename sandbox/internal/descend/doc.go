// Package descend visits trees that an untrusted program made, however deep they
// are.
package descend
