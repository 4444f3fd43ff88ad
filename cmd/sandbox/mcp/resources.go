package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
)

// maxResource bounds the content of a resource, in bytes. A longer one is cut, and says so.
const maxResource = 1 << 20

// addResources adds the records of runs and trials.
func (v *server) addResources() {
	for _, t := range []sdk.ResourceTemplate{
		{URITemplate: "evalbox://runs/{id}", Name: "run", MIMEType: "application/json", Description: "The whole result of a run."},
		{URITemplate: "evalbox://runs/{id}/stdout", Name: "stdout", MIMEType: "text/plain", Description: "The stdout of a run, 1 MiB at most."},
		{URITemplate: "evalbox://runs/{id}/stderr", Name: "stderr", MIMEType: "text/plain", Description: "The stderr of a run, 1 MiB at most."},
		{URITemplate: "evalbox://runs/{id}/files/{+path}", Name: "file", Description: "A file that a run left in ./final, 1 MiB at most."},
		{URITemplate: "evalbox://trials/{id}", Name: "trial", MIMEType: "application/json", Description: "The whole result of a trial."},
	} {
		v.AddResourceTemplate(&t, v.resource)
	}
}

// resource reads a resource by its URI.
func (v *server) resource(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	uri := req.Params.URI
	rest, ok := strings.CutPrefix(uri, "evalbox://")
	kind, rest, found := strings.Cut(rest, "/")
	id, part, _ := strings.Cut(rest, "/")
	if !ok || !found {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	var content *sdk.ResourceContents
	var err error
	switch {
	case kind == "trials" && part == "":
		content, err = v.trialResource(id)
	case kind == "runs":
		content, err = v.runResource(id, part)
	default:
		err = record.ErrNoRecord
	}
	switch {
	case errors.Is(err, record.ErrNoRecord):
		return nil, sdk.ResourceNotFoundError(uri)
	case err != nil:
		return nil, fmt.Errorf("resource: %w", err)
	}
	content.URI = uri
	return &sdk.ReadResourceResult{Cacheable: sdk.Cacheable{CacheScope: "private"}, Contents: []*sdk.ResourceContents{content}}, nil
}

func (v *server) trialResource(id string) (*sdk.ResourceContents, error) {
	t, err := v.trial(id)
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(t)
	return &sdk.ResourceContents{MIMEType: "application/json", Text: string(content)}, err
}

// runResource is a part of the record of a run: its result, a stream or a file.
func (v *server) runResource(id, part string) (*sdk.ResourceContents, error) {
	r, err := v.load(id)
	if err != nil {
		return nil, err
	}
	name, isFile := strings.CutPrefix(part, "files/")
	switch {
	case part == "":
		return resultResource(r.ID, r.Result, r.State)
	case part == "stdout", part == "stderr":
		return pageResource(r.Dir, map[string]string{"stdout": record.StdoutFile, "stderr": record.StderrFile}[part], true)
	case !isFile:
		return nil, record.ErrNoRecord
	}
	if name, err = url.PathUnescape(name); err != nil {
		return nil, refusef("escape the path as in a URI", "path: %v", err)
	}
	dir, name, err := v.output(r, name)
	if err != nil {
		return nil, err
	}
	return pageResource(dir, name, false)
}

func resultResource(id string, res *result.Result, state record.State) (*sdk.ResourceContents, error) {
	if res == nil {
		return nil, refusef("wait for its end", "run %s: has no result: it is %s", id, state)
	}
	content, err := res.Encode()
	return &sdk.ResourceContents{MIMEType: "application/json", Text: string(content)}, err
}

// pageResource is the first page of a file.
func pageResource(dir, name string, stream bool) (*sdk.ResourceContents, error) {
	var p page
	if err := p.read(dir, name, readArgs{Limit: maxResource}, stream); err != nil && !(stream && errors.Is(err, os.ErrNotExist)) {
		return nil, fsx.Cause(err)
	}
	content := &sdk.ResourceContents{MIMEType: "text/plain", Text: p.Content}
	if p.Encoding == "base64" {
		content.MIMEType, content.Text = "application/octet-stream", ""
		content.Blob, _ = base64.StdEncoding.DecodeString(p.Content) // it was encoded here
	}
	if p.NextOffset < p.Total {
		content.Meta = sdk.Meta{"truncated": true, "total_bytes": p.Total, "next_offset": p.NextOffset}
	}
	return content, nil
}
