package result

import _ "embed" // for the schema

// SchemaJSON is the JSON Schema (draft 2020-12) of [Result], under the name
// [SchemaV1]. It is the contract for readers in other languages; a test holds it
// and the Go types together.
//
//go:embed schema.json
var SchemaJSON []byte
