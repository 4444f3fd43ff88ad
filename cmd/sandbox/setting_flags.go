package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// settingFlag is a flag whose value is one of the layers of a setting. It keeps
// the text: [resolve] reads it as it reads a file.
type settingFlag struct {
	app     *app
	key     key
	shipped string
}

// String is the shipped default until the flag is given, for the help.
func (f *settingFlag) String() string {
	if f.app == nil {
		return "" // the zero value that flag packages compare with
	}
	if v, ok := f.app.given[f.key.name]; ok {
		return v.text
	}
	return f.shipped
}

func (f *settingFlag) Set(text string) error {
	f.app.given[f.key.name] = value{text: text, source: "--" + f.key.flag}
	return nil
}

func (f *settingFlag) Type() string { return f.key.kind }

// settingFlags gives a command, or it and all below it, the flags of settings.
func (a *app) settingFlags(cmd *cobra.Command, persistent bool, names ...string) {
	if a.given == nil {
		a.given = map[string]value{}
	}
	flags := cmd.Flags()
	if persistent {
		flags = cmd.PersistentFlags()
	}
	for _, name := range names {
		k, ok := keyNamed(name)
		if !ok || k.flag == "" {
			panic(fmt.Sprintf("setting %q has no flag", name)) // every run of any command would
		}
		flag := flags.VarPF(&settingFlag{a, k, shippedText(name)}, k.flag, k.short, k.help)
		if k.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

// shippedText is the shipped default of a key as it stands in the file.
func shippedText(name string) string {
	shipped, err := shippedLayer()
	if err != nil {
		return "" // loading the settings reports it
	}
	return shipped.values[name].text
}
