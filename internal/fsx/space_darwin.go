package fsx

import "os"

// Reserve cannot allocate disk space here.
func Reserve(*os.File, int64) error { return nil }
