//go:build !unix

package collect

import "io/fs"

func allocated(info fs.FileInfo) int64 { return info.Size() }
