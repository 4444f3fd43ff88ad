package evalbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// TestIssueForms: GitHub can read the forms, and a report of a bug has what is needed to find it.
func TestIssueForms(t *testing.T) {
	fields := map[string][]string{}
	forms, err := filepath.Glob(".github/ISSUE_TEMPLATE/*.yml")
	require.NoError(t, err)
	for _, path := range forms {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		if filepath.Base(path) == "config.yml" {
			var config struct {
				Blank    bool                                `yaml:"blank_issues_enabled"`
				Contacts []struct{ Name, URL, About string } `yaml:"contact_links"`
			}
			require.NoError(t, yaml.Unmarshal(text, &config), path)
			require.NotEmpty(t, config.Contacts)
			assert.Contains(t, config.Contacts[0].URL, "SECURITY.md")
			for _, c := range config.Contacts {
				assert.NotEmpty(t, c.Name)
				assert.NotEmpty(t, c.About, c.Name)
			}
			continue
		}
		var form struct {
			Name, Description string
			Body              []struct {
				Type, ID   string
				Attributes struct{ Label, Description, Value string }
			}
		}
		require.NoError(t, yaml.Unmarshal(text, &form), path)
		assert.NotEmpty(t, form.Name, path)
		assert.NotEmpty(t, form.Description, path)
		for _, field := range form.Body {
			if field.Type == "markdown" {
				assert.NotEmpty(t, field.Attributes.Value, path)
				continue
			}
			assert.Contains(t, []string{"textarea", "input", "dropdown", "checkboxes"}, field.Type, path)
			assert.NotEmpty(t, field.Attributes.Label, path)
			assert.NotContains(t, fields[filepath.Base(path)], field.ID, path)
			fields[filepath.Base(path)] = append(fields[filepath.Base(path)], field.ID)
		}
	}
	assert.Equal(t, []string{"happened", "program", "version", "doctor", "result"}, fields["bug.yml"])
	assert.Equal(t, []string{"task", "today", "proposal"}, fields["feature.yml"])
	assert.FileExists(t, ".github/PULL_REQUEST_TEMPLATE.md")
}
