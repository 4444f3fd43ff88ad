package main

import (
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/internal/dockerhost"
)

// oneEngine decides between a context and a host. As for any other setting the
// stronger layer wins; one that has both contradicts itself.
func (s *settings) oneEngine(layers []layer) error {
	for _, l := range slices.Backward(layers) {
		context, host := l.values[keyContext], l.values[keyHost]
		switch {
		case context.text != "" && host.text != "":
			return &settingError{Source: context.source, Key: context.key, Value: context.text, Flag: l.flags,
				Err:    fmt.Errorf("cannot be given together with %s", nameOf(host)),
				Advice: "leave one of the two out; see where settings come from with: sandbox config"}
		case context.text != "":
			s.forget(keyHost, &s.Engine.Host)
			return nil
		case host.text != "":
			s.forget(keyContext, &s.Engine.Context)
			return nil
		}
	}
	return nil
}

// nameOf names a value of a layer in a message.
func nameOf(v value) string {
	if v.key != "" {
		return v.key
	}
	return v.source
}

// forget empties a setting that a stronger one excludes.
func (s *settings) forget(name string, target *string) {
	if *target == "" {
		return
	}
	*target = ""
	for i, o := range s.origins {
		if o.Key == name {
			s.origins[i].Value = ""
		}
	}
}

// engineClient is the client of the engine that the settings and the environment
// name. The caller closes it.
func (s settings) engineClient() (*dockerhost.Client, error) {
	endpoint, err := dockerhost.Find(s.Engine)
	if err != nil {
		return nil, err
	}
	return endpoint.Client()
}

// checkAddress judges the way to the engine.
func checkAddress(endpoint dockerhost.Endpoint, err error) finding {
	const check = "engine address"
	if err != nil {
		return failed(check, err)
	}
	f := finding{Check: check, Verdict: verdictOK, Seen: endpoint.Host}
	if endpoint.Context != "default" {
		f.Seen += fmt.Sprintf(", of the context %s", endpoint.Context)
	}
	if endpoint.From != "" {
		f.Seen += fmt.Sprintf(" (from %s)", endpoint.From)
	}
	if endpoint.Warning != "" {
		f.Verdict, f.Seen, f.Mend = verdictWarn, endpoint.Warning, dockerhost.AdviceInsecure
	}
	return f
}
