//go:build !linux

package sandbox

import "os"

func freeBytes(string) (int64, bool) { return 0, false }

func reserve(*os.File, int64) error { return nil }

func mountsBelow(string) ([]string, error) { return nil, nil }

func hasSwap() bool { return true }

// sameMount cannot be told here.
func sameMount(string, string) bool { return false }

// mountNamespace is the only one.
func mountNamespace() string { return "" }
