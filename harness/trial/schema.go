package trial

import _ "embed" // for the schemas

// JobSchemaJSON, ResultSchemaJSON and EventSchemaJSON are the JSON Schemas (draft 2020-12) of
// [Job], [Result] and [Event], for readers in other languages. Do not change them at run time.
var (
	//go:embed job.schema.json
	JobSchemaJSON []byte
	//go:embed result.schema.json
	ResultSchemaJSON []byte
	//go:embed event.schema.json
	EventSchemaJSON []byte
)
