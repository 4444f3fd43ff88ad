package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// build returns the request of an operation, without its credentials.
func (r Request) build(ctx context.Context) (*http.Request, error) {
	source, known := r.API.Endpoints[r.Operation]
	if !known {
		return nil, &OperationError{Operation: r.Operation, Known: slices.Sorted(maps.Keys(r.API.Endpoints))}
	}
	e, err := parseEndpoint(source)
	if err != nil {
		return nil, err // refused by Check before
	}
	path, err := r.path(e)
	if err != nil {
		return nil, err
	}
	rest := maps.Clone(r.Parameters)
	for _, name := range e.parameters() {
		delete(rest, name)
	}
	target := strings.TrimRight(r.API.BaseURL, "/") + path
	var body []byte
	switch {
	case len(rest) == 0:
	case hasBody(e.method):
		body, err = encode(rest)
	default:
		var query string
		query, err = encodeQuery(rest)
		target += query
	}
	if err != nil {
		return nil, err
	}
	return r.request(ctx, e.method, target, body)
}

// request returns a request with all headers that are not secret.
func (r Request) request(ctx context.Context, method, target string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, */*;q=0.5")
	req.Header.Set("User-Agent", "evalbox")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.API.Headers {
		req.Header.Set(name, value)
	}
	return req, nil
}

// path fills the path of an endpoint. It reports every parameter that is missing or has no
// form in a path.
func (r Request) path(e endpoint) (string, error) {
	values := map[string]string{}
	var errs []error
	for _, name := range e.parameters() {
		value, err := r.segment(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		values[name] = url.PathEscape(value)
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	path := e.fill(func(name string) string { return values[name] })
	if leadsElsewhere(path) {
		return "", &ParameterError{Name: strings.Join(e.parameters(), ", "), Rule: "must not make a segment . or .. of the path"}
	}
	return path, nil
}

// segment is the value of a parameter in a path. A server may unescape a path before it splits
// it, or unescape it twice, so no part of the value may be . or .. either.
func (r Request) segment(name string) (string, error) {
	given, found := r.Parameters[name]
	if !found {
		return "", &ParameterError{Name: name, Rule: "is missing: the path of the operation needs it"}
	}
	value, ok := scalar(given)
	switch {
	case !ok:
		return "", &ParameterError{Name: name, Rule: "must be text, a number, true or false: it is part of the path"}
	case value == "":
		return "", &ParameterError{Name: name, Rule: "must not be empty: it is part of the path"}
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		return "", &ParameterError{Name: name, Rule: "must be UTF-8 without control characters: it is part of the path"}
	case leadsElsewhere(url.PathEscape(value)), leadsElsewhere(value):
		return "", &ParameterError{Name: name, Rule: "must not have a segment . or ..: it is part of the path"}
	}
	return value, nil
}

// encodeQuery returns the query of parameters, sorted, with its question mark. A list repeats
// its key.
func encodeQuery(parameters map[string]any) (string, error) {
	query := url.Values{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		given := []any{parameters[name]}
		if list := reflect.ValueOf(parameters[name]); list.Kind() == reflect.Slice {
			given = given[:0]
			for i := range list.Len() {
				given = append(given, list.Index(i).Interface())
			}
		}
		for _, each := range given {
			value, ok := scalar(each)
			if !ok {
				errs = append(errs, &ParameterError{Name: name, Rule: "must be text, a number, true, false or a list of those: it is part of the query"})
				break
			}
			query.Add(name, value)
		}
	}
	if err := errors.Join(errs...); err != nil || len(query) == 0 {
		return "", err
	}
	return "?" + query.Encode(), nil
}

// encode returns parameters as JSON.
func encode(parameters map[string]any) ([]byte, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(parameters); err != nil {
		return nil, fmt.Errorf("the parameters cannot be written as JSON: %w", err)
	}
	return bytes.TrimSuffix(body.Bytes(), []byte("\n")), nil
}

// scalar is a value as text. Whole numbers have no exponent.
func scalar(value any) (string, bool) {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.String: // also json.Number
		return v.String(), true
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(v.Uint(), 10), true
	case reflect.Float32, reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, v.Type().Bits()), true
	default:
		return "", false
	}
}
