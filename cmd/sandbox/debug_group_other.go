//go:build !unix

package main

import "os/exec"

// ownGroup does nothing: there are no process groups here.
func ownGroup(*exec.Cmd) {}

// endGroup does nothing, either.
func endGroup(*exec.Cmd) {}
