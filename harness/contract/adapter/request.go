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
		Timeout: e.Timeout, MaxBody: max(int64(e.Stdout), 1), Egress: egress, LookupEnv: x.registry.LookupEnv,
	})
	if err != nil {
		return failedRequest(err)
	}
	answer := contract.Answer{Status: contract.StatusAnswered, Code: &res.Status, Text: strings.ToValidUTF8(string(res.Body), "\uFFFD")}
	answer.TextBytes = int64(len(answer.Text))
	if res.Truncated {
		answer.TextBytes = max(res.BodyBytes, answer.TextBytes+1)
	}
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
		return res.Clean(value), nil
	case !utf8.Valid(res.Body):
		return nil, fmt.Errorf("the answer has %d bytes of type %s, which are not text", res.BodyBytes, strict.Quoted(res.ContentType))
	}
	return string(res.Body), nil
}

// failedRequest is the answer of a request without a response.
func failedRequest(err error) contract.Answer {
	answer := contract.Answer{Status: contract.StatusUnreachable, Err: err}
	if secret, ok := errors.AsType[*web.SecretError](err); ok {
		v := contract.Violation{Code: "CK-01", Field: "adapter_id", Rule: secret.Error(),
			Hint: "set the variable for this command, or name another variable or a file in interface.api.auth of the adapter"}
		return contract.Answer{Refused: []contract.Violation{v}}
	}
	if bad, ok := errors.AsType[*web.ParameterError](err); ok {
		return contract.Answer{Refused: []contract.Violation{{Code: "CX-01", Field: strict.Path("inputs.parameters", bad.Name), Rule: bad.Rule}}}
	}
	if _, ok := errors.AsType[*web.RefusedError](err); ok {
		answer.Status = contract.StatusBlocked
	}
	_, answer.Unsent = errors.AsType[*web.UnreachableError](err)
	return answer
}
