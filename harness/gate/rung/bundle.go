package rung

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// Genesis is what the first bundle of a chain has as the hash of the one before it.
const Genesis = "genesis"

// Bundle is one link of a chain of evidence (RO-15). Everything but Metadata is hashed.
type Bundle struct {
	BundleID  string                     `json:"bundle_id"`
	ServiceID string                     `json:"service_id"`
	Action    string                     `json:"action"`
	Timestamp string                     `json:"timestamp"`
	Artifacts map[string]json.RawMessage `json:"artifacts"`
	Metadata  map[string]json.RawMessage `json:"metadata"`
	// ContentHash is the hash of this bundle, PrevHash that of the one before it.
	ContentHash   string `json:"content_hash"`
	PrevHash      string `json:"prev_hash"`
	ChainPosition int    `json:"chain_position"`
}

// ContentHash is the hash that a bundle must have: SHA-256 of its content as those tools
// write it, with sorted keys, in ASCII.
func ContentHash(b Bundle) (string, error) {
	artifacts := b.Artifacts
	if artifacts == nil {
		artifacts = map[string]json.RawMessage{}
	}
	return contentHash(map[string]any{
		"service_id": b.ServiceID, "action": b.Action, "timestamp": b.Timestamp, "artifacts": artifacts, "prev_hash": b.PrevHash,
	})
}

func contentHash(content map[string]any) (string, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	canonical, err := pythonJSON(text)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(canonical)), nil
}

// VerifyChain reads a chain, a list of bundles, and returns what is wrong with it: a
// bundle out of its place, one that is not chained to the one before it, and one whose
// content is not what was hashed. An empty list of problems is an unbroken chain.
func VerifyChain(text []byte) ([]string, error) {
	var chain []Bundle
	if err := evidence.Decode(text, &chain); err != nil {
		return nil, err
	}
	problems := []string{}
	previous := Genesis
	for i, b := range chain {
		if id := bundleID(i); b.BundleID != id || b.ChainPosition != i {
			problems = append(problems, fmt.Sprintf("bundle %d is named %q and says that it is number %d; it must be %q", i, b.BundleID, b.ChainPosition, id))
		}
		if b.PrevHash != previous {
			problems = append(problems, fmt.Sprintf("bundle %d is not chained to the one before it", i))
		}
		hash, err := ContentHash(b)
		if err != nil {
			return nil, fmt.Errorf("bundle %d: %w", i, err)
		}
		if b.ContentHash != hash {
			problems = append(problems, fmt.Sprintf("bundle %d is not what was hashed", i))
		}
		previous = b.ContentHash
	}
	return problems, nil
}

func bundleID(position int) string { return fmt.Sprintf("ev-%06d", position) }

// Append makes the next bundle of a chain from what is to be recorded: its ID, place and
// hashes are set.
func Append(chain []Bundle, b Bundle) (Bundle, error) {
	b.BundleID, b.ChainPosition, b.PrevHash = bundleID(len(chain)), len(chain), Genesis
	if len(chain) > 0 {
		b.PrevHash = chain[len(chain)-1].ContentHash
	}
	b.Artifacts, b.Metadata = maps.Clone(b.Artifacts), maps.Clone(b.Metadata)
	var err error
	b.ContentHash, err = ContentHash(b)
	return b, err
}
