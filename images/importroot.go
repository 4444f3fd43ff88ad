package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/pkg/jsonmessage"
)

var errImportOver = errors.New("the engine stopped reading")

// importRoot makes the root file system and imports it while it is being
// written, so that it never lies on disk as a whole.
func (m *maker) importRoot(ctx context.Context) error {
	b := *m.entry.Base.Bootstrap
	m.steps.line("bootstrap", fmt.Sprintf("debian %s with %d packages (about a minute)", b.Suite, len(b.Packages)))

	rootCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	pr, pw := io.Pipe()
	var importFailed atomic.Bool
	rootDone := make(chan error, 1)
	go func() {
		err := m.opts.Root(rootCtx, b, pw, func(line string) { m.steps.line("bootstrap", line) })
		if importFailed.Load() {
			err = nil // a consequence
		}
		_ = pw.CloseWithError(err) // nil gives EOF; never fails
		rootDone <- err
	}()

	importErr := m.importTar(ctx, pr)
	if importErr == nil {
		// The engine may answer before it has read the padding.
		_, importErr = io.Copy(io.Discard, pr)
	}
	if importErr != nil {
		importFailed.Store(true)
		_ = pr.CloseWithError(errImportOver) // never fails
		cancel()
	}
	rootErr := <-rootDone

	switch {
	case ctx.Err() != nil:
		return m.failed(ctx, "bootstrap", ctx.Err())
	case rootErr != nil:
		return m.failed(ctx, "bootstrap", rootErr)
	case importErr != nil:
		return m.failed(ctx, "import", importErr)
	}
	m.steps.line("import", "root file system is in the engine")
	return nil
}

// importTar imports one tar archive under the tag of the base.
func (m *maker) importTar(ctx context.Context, tar io.Reader) error {
	// Without the Close method of tar: the HTTP client would close it on an
	// early answer.
	source := image.ImportSource{Source: struct{ io.Reader }{tar}, SourceName: "-"}
	body, err := m.eng.ImageImport(ctx, source, m.entry.baseTag(), image.ImportOptions{
		Message:  "evalbox image ensure " + m.entry.Name,
		Platform: "linux/" + runtime.GOARCH,
	})
	if err != nil {
		return err
	}
	defer body.Close()
	return jsonmessage.DisplayJSONMessagesStream(body, io.Discard, 0, false, nil)
}
