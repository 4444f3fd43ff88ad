package contract

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"gopkg.in/yaml.v3"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Files of the record of an execution, beside those of its run.
const (
	// OutcomeFile is the outcome.
	OutcomeFile = "outcome.json"
	// ContractFile is the contract as it was carried out, defaults filled in.
	ContractFile = "contract.yaml"
)

// Encode is the wire form of an outcome, with a newline at its end.
func (o *Outcome) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the outcome of %s: %w", o.ExecutionID, err)
	}
	return append(text, '\n'), nil
}

// writeOutcome puts the outcome into the record of its run.
func (run *execution) writeOutcome() error {
	if run.record == "" {
		return nil
	}
	text, err := run.outcome.Encode()
	if err == nil {
		err = fsx.WriteFile(filepath.Join(run.record, OutcomeFile), text, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("outcome of %s: %w", run.outcome.ExecutionID, err)
	}
	return nil
}

// writeContract puts the contract into the record, before the program starts.
func (run *execution) writeContract() error {
	if run.record == "" {
		return nil
	}
	c := run.effective.Contract
	c.ExecutionID = run.outcome.ExecutionID
	text, err := c.YAML()
	if err == nil {
		err = fsx.WriteFile(filepath.Join(run.record, ContractFile), text, 0o600, true)
	}
	if err != nil {
		return fmt.Errorf("contract of %s: %w", run.outcome.ExecutionID, err)
	}
	return nil
}

// YAML is the contract as a document, its fields in the order of the types.
func (c Contract) YAML() ([]byte, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	// JSON is YAML; reading it as nodes keeps the order.
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	plain(&node)
	return yaml.Marshal(&node)
}

// plain takes away the style of JSON.
func plain(node *yaml.Node) {
	node.Style = 0
	for _, part := range node.Content {
		plain(part)
	}
}
