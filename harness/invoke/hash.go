package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"

	"github.com/evalbox/evalbox/internal/fsx"
)

// HashArtifact is the SHA-256 of a file's bytes, in lower-case hex (M3-04, M3-10). The
// file must be regular; links are followed. Its error is an [*ArtifactError] or that of ctx.
func HashArtifact(ctx context.Context, path string) (string, error) {
	file, err := fsx.Open(path)
	if err != nil {
		return "", openError(path, err)
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, fsx.WithContext(ctx, file)); err != nil {
		return "", readError(ctx, path, err)
	}
	return sumText(sum), nil
}

func sumText(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)) }

// readError is the error of ctx, if that is why reading ended.
func readError(ctx context.Context, path string, err error) error {
	if canceled := context.Cause(ctx); canceled != nil {
		return canceled
	}
	return artifactError(path, 0, KindUnreadable, "cannot be read: %s", fsx.Cause(err))
}
