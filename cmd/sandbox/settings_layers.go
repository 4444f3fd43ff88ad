package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/configs"
)

// A layer is one place that settings come from.
type layer struct {
	values map[string]value
	// shipped marks the embedded defaults, flags the command line.
	shipped, flags bool
}

// A value is the text of one setting, with what names it in a message.
type value struct {
	text string
	// source is the file, the variable or the flag; key is the key in a file.
	source, key string
}

// shippedSource names the embedded settings.
const shippedSource = "default"

// configVariable names the file that replaces ./sandbox.yaml.
const configVariable = envPrefix + "CONFIG"

// sources say where to look for settings.
type sources struct {
	// configFile replaces ./sandbox.yaml; empty for none.
	configFile string
	// userDir is the folder of the user's configuration; empty for none.
	userDir string
	// environ is the environment as "NAME=value".
	environ []string
	// flags are the flags that were given, by key.
	flags map[string]value
}

// load reads all layers, the weakest first, and decides every key.
func (s sources) load() (settings, error) {
	shipped, err := shippedLayer()
	if err != nil {
		return settings{}, err
	}
	user, err := s.userLayer()
	errs := []error{err}
	env, err := envLayer(s.environ)
	errs = append(errs, err)
	project, err := s.projectLayer()
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return settings{}, err
	}
	return resolve([]layer{shipped, user, project, env, {values: s.flags, flags: true}})
}

// shippedLayer holds the embedded defaults.
var shippedLayer = sync.OnceValues(func() (layer, error) {
	l, err := parseLayer(configs.Settings(), shippedSource, true)
	l.shipped = true
	return l, err
})

func (s sources) userLayer() (layer, error) {
	if s.userDir == "" {
		return layer{}, nil
	}
	return readLayer(userFile(s.userDir), true, false)
}

// userFile is the settings file below a folder for configuration.
func userFile(dir string) string { return filepath.Join(dir, "evalbox", "sandbox.yaml") }

// projectLayer reads the file that was named, which the operator thereby trusts,
// or else what lies in this folder.
func (s sources) projectLayer() (layer, error) {
	file := s.configFile
	if file == "" {
		file = lookup(s.environ, configVariable)
	}
	if file != "" {
		return readLayer(file, true, true)
	}
	return readLayer("sandbox.yaml", false, false)
}

func lookup(environ []string, name string) string {
	for _, pair := range environ {
		if text, ok := strings.CutPrefix(pair, name+"="); ok {
			return text
		}
	}
	return ""
}

// maxSettingsFile bounds a settings file.
const maxSettingsFile = 1 << 20

// readLayer reads a settings file. One that does not exist is an empty layer,
// unless it must exist.
func readLayer(file string, trusted, must bool) (layer, error) {
	data, err := fsx.Read(file, maxSettingsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !must:
		return layer{}, nil
	case err != nil:
		return layer{}, &fileError{fileSettings, file, err}
	}
	return parseLayer(data, file, trusted)
}

// envLayer takes every variable with our prefix. One that is no key is an error:
// a limit with a typing mistake would silently not be one.
func envLayer(environ []string) (layer, error) {
	l := layer{values: map[string]value{}}
	var names []string
	for _, k := range keys {
		names = append(names, k.variable())
	}
	var errs []error
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || name == configVariable {
			continue
		}
		i := slices.Index(names, name)
		if i < 0 {
			errs = append(errs, &settingError{
				Source: name, Err: errors.New("unknown setting in the environment"), Advice: didYouMean(name, names),
			})
			continue
		}
		l.values[keys[i].name] = value{text: text, source: name}
	}
	return l, errors.Join(errs...)
}
