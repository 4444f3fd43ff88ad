//go:build !linux

package fsx

func renameExclusive(from, to int, name string) error { return renameChecked(from, to, name) }
