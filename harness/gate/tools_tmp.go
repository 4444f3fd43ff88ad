package gate

import (
	_ "github.com/go-git/go-git/v5"
	_ "github.com/in-toto/attestation/go/predicates/provenance/v1"
	_ "github.com/in-toto/attestation/go/v1"
	_ "github.com/pmezard/go-difflib/difflib"
	_ "github.com/secure-systems-lab/go-securesystemslib/dsse"
	_ "github.com/secure-systems-lab/go-securesystemslib/signerverifier"
	_ "google.golang.org/protobuf/encoding/protojson"
)
