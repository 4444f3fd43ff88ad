package repo

// What is read of a repository at most.
const (
	// maxMeta bounds one commit, tag or tree in bytes, maxBlob one file.
	maxMeta = 64 << 20
	maxBlob = 4 << 30
	// maxGitFile bounds a file of the repository's own, such as its index; packs are read
	// in parts.
	maxGitFile = 1 << 30
	// maxIgnoreFile bounds an ignore file, maxPatterns all of them together: each pattern
	// is compared with every name.
	maxIgnoreFile = 1 << 20
	maxPatterns   = 20_000
	// maxFiles bounds the files of a workspace or revision, maxTotal their bytes when they
	// are written, maxDepth how deep folders are nested, maxPath a path in bytes.
	maxFiles = 500_000
	maxTotal = 64 << 30
	maxDepth = 200
	maxPath  = 4096
	// maxTags bounds how many tags stand for one another, maxSteps the way from a commit
	// to its ancestor, maxNested how deep submodules are nested.
	maxTags   = 10
	maxSteps  = 100_000
	maxNested = 10
	// maxDiffers bounds how many differing paths are told.
	maxDiffers = 20
)
