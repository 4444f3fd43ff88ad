package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryTopicHasAText(t *testing.T) {
	for _, topic := range topics {
		text, err := topic.text(textWidth)
		require.NoError(t, err, topic.name)
		require.Greater(t, len(text), 100, topic.name)
		for line := range strings.Lines(text) {
			assert.NotRegexp(t, `^[^ ].*\]\(`, line, topic.name)
		}
	}
}

func TestPlainText(t *testing.T) {
	const page = "# A `title`\n\nA paragraph with a [link](other.md#part) and **weight**,\nwhich goes on.\n\n" +
		"- one\n- two\n\n| key | default | meaning |\n|---|---|---|\n| `a` | `x\\|y` | the first |\n| `b` | | |\n\n```sh\nrun   this [not](a link)\n```\n"
	const want = "A TITLE\n\nA paragraph with a link and\nweight, which goes on.\n\n  - one\n  - two\n\n" +
		"a\n    default: x|y\n    the first\nb\n\n    run   this [not](a link)\n"
	text := plainText(page, 30)
	assert.Equal(t, want, text)
	for line := range strings.Lines(text) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 30)
	}
}
