package wish

import _ "embed" // for the schemas

// SchemaJSON and LockSchemaJSON are the JSON Schemas (draft 2020-12) of a wish as people
// write it and of [Lock], for readers and writers in other languages; a test holds them
// and the Go types together. A schema knows the form only: [Parse] says more. Do not
// change them at run time.
var (
	//go:embed wish.schema.json
	SchemaJSON []byte
	//go:embed wish.lock.schema.json
	LockSchemaJSON []byte
)
