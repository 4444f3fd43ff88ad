package main

import (
	"net/url"
	"regexp"
	"strings"
)

// Commands in a hint, up to where their global flags belong.
var (
	ourCommand    = regexp.MustCompile(`\bsandbox (run|exec|contract|evaluate|image|ls|ps|show|logs|rm|gc|gpus|doctor|config|gate|replay)\b`)
	dockerCommand = regexp.MustCompile(`\bdocker (pull|tag|rmi|image|network|stop|system)\b`)
)

// repeatFlags puts the global flags of this command line into the commands of a
// hint: without them those would be about another engine, lock or catalog.
func (a *app) repeatFlags(hint string) string {
	if strings.Contains(hint, "--help") {
		return hint
	}
	engine := a.givenFlags("context", "host")
	all := engine + a.givenFlags("state_dir", "catalog", "lock")
	if a.configFile != "" {
		all += " --config " + shellWord(a.configFile)
	}
	hint = ourCommand.ReplaceAllString(hint, "sandbox"+literal(all)+" $1")
	return dockerCommand.ReplaceAllString(hint, "docker"+literal(engine)+" $1")
}

// literal is text in a replacement of a regular expression.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// givenFlags are those of the settings that were given as flags, without passwords.
func (a *app) givenFlags(names ...string) string {
	text := ""
	for _, name := range names {
		if v := a.given[name]; v.Text != "" {
			if u, err := url.Parse(v.Text); name == "host" && err == nil {
				v.Text = u.Redacted()
			}
			text += " " + v.Name + " " + shellWord(v.Text)
		}
	}
	return text
}
