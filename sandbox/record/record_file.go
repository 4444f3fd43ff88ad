package record

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
)

func ReadJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

func WriteJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", filepath.Base(path), err)
	}
	// No need to survive a power cut: the container does not either.
	return fsx.WriteFile(path, append(text, '\n'), 0o600, false)
}
