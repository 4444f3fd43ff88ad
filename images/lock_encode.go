package images

import (
	"bytes"
	"fmt"

	"gopkg.in/yaml.v3"
)

// lockHeader begins every lock file.
const lockHeader = `# What each image was when it was locked. Runs refuse another one.
# Written by: sandbox image lock. To be kept with the project, not edited by hand.
`

// Encode returns the wire form of the lock. The same lock gives the same bytes.
func (l Lock) Encode() ([]byte, error) {
	doc := lockDocument{Schema: LockSchema, Images: map[string]lockedPackage{}}
	for name, e := range l.entries {
		doc.Images[name] = lockedPackage{LockEntry: e, PackagesSHA256: e.Packages.SHA256(), Packages: e.Packages.Text()}
	}
	text := bytes.NewBufferString(lockHeader)
	encoder := yaml.NewEncoder(text)
	encoder.SetIndent(2)
	if err := encoder.Encode(doc); err != nil { // strings, numbers and a time
		return nil, fmt.Errorf("encoding the image lock: %w", err)
	}
	return text.Bytes(), encoder.Close()
}
