package settings

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Flags are the settings that are given on a command line, by key.
type Flags map[string]Flag

// A Flag is the text of a setting, and the name of its flag such as "--memory".
type Flag struct{ Text, Name string }

// Add registers the flags of some keys, which fill f when they are given. A key without a
// flag is a mistake of the program.
func (f Flags) Add(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		k, ok := keyNamed(name)
		if !ok || k.help == "" {
			panic(fmt.Sprintf("setting %q has no flag", name)) // every run of any command would
		}
		flag := flags.VarPF(&settingFlag{f, k}, k.flagName(), k.letter, k.help)
		if k.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

// KeyOf is the key of a flag; empty for a flag that is not a setting.
func KeyOf(flag *pflag.Flag) string {
	value := flag.Value
	if wrapped, ok := value.(interface{ Unwrap() pflag.Value }); ok {
		value = wrapped.Unwrap()
	}
	if setting, ok := value.(*settingFlag); ok {
		return setting.key.name
	}
	return ""
}

// settingFlag keeps the text of a flag: [Load] reads it as it reads a file. viper could
// bind the flag itself, but would read a text that is not a boolean as false.
type settingFlag struct {
	given Flags
	key   key
}

// String is the shipped default until the flag is given, for the help.
func (f *settingFlag) String() string {
	if flag, ok := f.given[f.key.name]; ok {
		return flag.Text
	}
	shipped, err := shippedValues()
	if v, ok := shipped[f.key.name].(value); ok && err == nil {
		return v.text
	}
	return "" // also of the zero value, which flag packages compare with
}

func (f *settingFlag) Set(text string) error {
	f.given[f.key.name] = Flag{Text: text, Name: "--" + f.key.flagName()}
	return nil
}

func (f *settingFlag) Type() string { return f.key.kind }

// Nearest is the known name that a mistyped one is nearest to; empty if none is near.
func Nearest(name string, known []string) string {
	// Further away it is another word.
	best, bestDistance := "", min(len(name)/3+2, 4)
	for _, k := range known {
		if d := distance(name, k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// didYouMean is a hint with the nearest setting.
func didYouMean(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "see all with: sandbox config"
}

// distance is the number of letters to insert, delete or change to get from a to
// b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j+1]+1, row[j]+1, diagonal+cost)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
