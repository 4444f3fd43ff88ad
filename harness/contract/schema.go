package contract

import _ "embed" // for the schemas

// ContractSchemaJSON and OutcomeSchemaJSON are the JSON Schemas (draft 2020-12) of
// [Contract] and [Outcome], for readers and writers in other languages; a test holds
// them and the Go types together. A schema knows the form only: [Rules] say more. Do not
// change them at run time.
var (
	//go:embed contract.schema.json
	ContractSchemaJSON []byte
	//go:embed outcome.schema.json
	OutcomeSchemaJSON []byte
)
