package adapter

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter/web"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/policy"
)

// request is the call of a web API (AR-03).
func (x *call) request() {
	api := x.Interface.API
	method, path, _ := strings.Cut(api.Endpoints[x.operation], " ")
	x.adapted.Target = method + " " + strings.TrimSuffix(api.BaseURL, "/") + strings.TrimSpace(path)
	for _, name := range api.Parameters(x.operation) {
		if value, ok := x.parameters[name]; !ok || value == nil {
			x.refuse("CX-01", strict.Path("inputs.parameters", name), "", fmt.Sprintf("is missing: %s needs it", api.Endpoints[x.operation]))
		}
	}
	x.adapted.Remote = x.send
	x.noArguments()
}

// send makes the request.
func (x *call) send(ctx context.Context, e contract.Effective, egress policy.Egress) contract.Answer {
	res, err := x.registry.web.Do(ctx, web.Request{
		API: *x.Interface.API, AdapterID: x.ID, Operation: x.operation, Parameters: x.parameters,
		Timeout: e.Timeout, MaxBody: int64(e.Stdout), Egress: egress, LookupEnv: x.registry.LookupEnv,
	})
	if err != nil {
		return failedRequest(err)
	}
	answer := contract.Answer{Status: contract.StatusAnswered, Code: &res.Status, Text: strings.ToValidUTF8(string(res.Body), "\uFFFD"), TextBytes: res.BodyBytes}
	switch {
	case res.Status < 200 || res.Status > 299:
		answer.Err = fmt.Errorf("the server answered with status %d", res.Status)
	case res.Truncated:
		answer.Err = errCut
	default:
		answer.Value, answer.Err = body(res)
	}
	return answer
}

// body is the body of a response as plain data: JSON if the server says so, otherwise text.
func body(res *web.Response) (any, error) {
	kind, _, err := mime.ParseMediaType(res.ContentType)
	switch {
	case len(res.Body) == 0:
		return nil, nil //nolint:nilnil // an answer without a body is null
	case err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json")):
		value, err := plain(res.Body)
		if err != nil {
			return nil, fmt.Errorf("the server said %s, and its answer is not JSON: %w", kind, err)
		}
		return value, nil
	case !utf8.Valid(res.Body):
		return nil, fmt.Errorf("the answer has %d bytes of type %s, which are not text", res.BodyBytes, strict.Quoted(res.ContentType))
	}
	return string(res.Body), nil
}

// failedRequest is the answer of a request without a response.
func failedRequest(err error) contract.Answer {
	answer := contract.Answer{Status: contract.StatusUnreachable, Err: err}
	refuse := func(field, rule string) contract.Answer {
		return contract.Answer{Refused: []contract.Violation{{Code: "CK-01", Field: field, Rule: rule}}}
	}
	if secret, ok := errors.AsType[*web.SecretError](err); ok {
		return refuse("adapter_id", secret.Error())
	}
	if bad, ok := errors.AsType[*web.ParameterError](err); ok {
		return refuse(strict.Path("inputs.parameters", bad.Name), bad.Rule)
	}
	if _, ok := errors.AsType[*web.RefusedError](err); ok {
		answer.Status = contract.StatusBlocked
	}
	_, answer.Unsent = errors.AsType[*web.UnreachableError](err)
	return answer
}
