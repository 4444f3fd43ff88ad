package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEveryTopicHasAText(t *testing.T) {
	all, err := topics()
	require.NoError(t, err)
	require.Greater(t, len(all), 30)
	named := map[string]bool{flagsTopic: true, topicsTopic: true}
	for _, topic := range all {
		require.False(t, named[topic.name], "two topics %s", topic.name)
		named[topic.name] = true
		text, err := topic.text(textWidth)
		require.NoError(t, err, topic.name)
		require.Greater(t, len(text), 100, topic.name)
		for line := range strings.Lines(text) {
			assert.NotRegexp(t, `^[^ ].*\]\(`, line, topic.name)
		}
	}
}

func TestPlainText(t *testing.T) {
	const page = "<!-- guide: ssh -->\n# A `title`\n\nA paragraph with a [link](other.md#part) and **weight**,\nwhich goes on.\n\n![A picture](a.png)\n\n" +
		"- one\n- two\n\n| key | default | meaning |\n|---|---|---|\n| `a` | `x\\|y` | the first |\n| `b` | | |\n\n```sh\nrun   this [not](a link)\n```\n"
	const want = "A TITLE\n\nA paragraph with a link and\nweight, which goes on.\n\n\n  - one\n  - two\n\n" +
		"a\n    default: x|y\n    the first\nb\n\n    run   this [not](a link)\n"
	text := plainText(page, 30)
	assert.Equal(t, want, text)
	for line := range strings.Lines(text) {
		assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 30)
	}
}
