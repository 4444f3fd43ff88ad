package images

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"

	"github.com/docker/docker/pkg/jsonmessage"
)

var errLoadOver = errors.New("the engine stopped reading")

// A loadReport is what the engine says that it loaded.
type loadReport struct {
	ids, names map[string]bool
	// cut says that the engine did not get the whole archive.
	cut bool
}

// id is that of the only image.
func (r loadReport) id() string {
	for id := range r.ids {
		return id
	}
	return ""
}

// load gives the engine what write writes. It returns what the engine has said by
// then, also with an error.
func (i importer) load(ctx context.Context, write func(io.Writer) error) (loadReport, error) {
	pr, pw := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := write(pw)
		_ = pw.CloseWithError(err) // nil gives EOF; never fails
		written <- err
	}()
	report, loadErr := i.loadTar(ctx, pr)
	if loadErr == nil {
		_, loadErr = io.Copy(io.Discard, pr) // the engine may not read the padding
	}
	_ = pr.CloseWithError(errLoadOver) // never fails
	writeErr := <-written
	report.cut = writeErr != nil && !errors.Is(writeErr, errLoadOver)
	switch {
	case ctx.Err() != nil:
		return report, ctx.Err()
	case report.cut:
		return report, &ArchiveError{i.source, writeErr}
	case loadErr != nil:
		return report, i.bad("the engine does not take it: %w", loadErr)
	case len(report.names) > 0:
		return report, i.bad("the engine took names from it")
	case len(report.ids) != 1:
		return report, i.bad("the engine reports %d images, want 1", len(report.ids))
	}
	return report, nil
}

// maxLoadReport bounds what an engine says of a load.
const maxLoadReport = 16 << 20

// loaded is what engines say of an image: its ID when it has no name.
var loaded = regexp.MustCompile(`Loaded image(?: ID)?: (\S+)`)

func (i importer) loadTar(ctx context.Context, in io.Reader) (loadReport, error) {
	report := loadReport{ids: map[string]bool{}, names: map[string]bool{}}
	// Without the Close method: the HTTP client would close it on an early
	// answer.
	resp, err := i.eng.ImageLoad(ctx, struct{ io.Reader }{in})
	if err != nil {
		return report, err
	}
	defer resp.Body.Close()
	messages := json.NewDecoder(io.LimitReader(resp.Body, maxLoadReport))
	for {
		var m jsonmessage.JSONMessage
		err := messages.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return report, nil
		case err != nil:
			return report, err
		case m.Error != nil:
			return report, m.Error
		}
		for _, found := range loaded.FindAllStringSubmatch(m.Stream, -1) {
			if strings.HasPrefix(found[1], "sha256:") {
				report.ids[found[1]] = true
			} else {
				report.names[found[1]] = true
			}
		}
	}
}
