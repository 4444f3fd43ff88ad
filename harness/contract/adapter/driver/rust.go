package driver

import (
	_ "embed" // for the drivers
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed driver.rs.tmpl
var rustDriver string

//go:embed launcher.rs.tmpl
var rustLauncher string

// rustManifest has a section of its own for the workspace, so that Cargo looks for none above.
const rustManifest = `[package]
name = "evalbox-driver"
version = "0.0.0"
edition = "2021"

[profile.dev]
debug = false
incremental = false

[workspace]
`

// rustLock is the lock file of a project without dependencies. Cargo writes none then.
const rustLock = `version = 3

[[package]]
name = "evalbox-driver"
version = "0.0.0"
`

// builtin are the crates that come with the compiler.
var builtin = []string{"alloc", "core", "std"}

func rust() language {
	name := word + `(?:::` + word + `)*`
	return language{
		packages: newForm(`[A-Za-z][A-Za-z0-9_-]*|\./(?:`+paths+`/?)?|/`+paths+`/?`,
			"must be a crate such as serde_json, std, or a directory such as ./lib"),
		imports:     newForm(name, "must be a Rust module, such as std::cmp"),
		functions:   newForm(name, "must be a function such as max(a, b), Type::new(a) or mod::name(&a, b.into())"),
		parameters:  newForm(`&?`+word+`|`+word+`\.into\(\)`, "must be a Rust name, &name or name.into()"),
		imported:    crateOf,
		needsNames:  true,
		checkValues: valueChecks(literal),
		program:     rustProgram,
		command:     "cargo",
		missing:     rustSigns(),
	}
}

// crateOf is the name of the crate of a package.
func crateOf(pkg string) string { return strings.ReplaceAll(path.Base(pkg), "-", "_") }

// literal is the rule of values without a literal.
func literal(value any) string {
	if _, ok := value.(map[string]any); ok {
		return "is a mapping, for which Rust does not have a literal"
	}
	return ""
}

// rustProgram returns a project that the Cargo of the image builds and runs. The project has no
// dependency, because Cargo would write its lock file into a directory that is read-only. If the
// function is not in a crate of the compiler, the project is a launcher, which makes and runs the one
// with the dependency below /tmp.
func rustProgram(c Call, f function) (Program, error) {
	files := map[string]string{"Cargo.toml": rustManifest, "Cargo.lock": rustLock}
	extern := ""
	if c.Package == "alloc" {
		extern = "extern crate alloc;"
	}
	driver := strings.NewReplacer("{{extern}}", extern, "{{call}}", rustCall(c, f)).Replace(rustDriver)
	if slices.Contains(builtin, c.Package) {
		files["src/main.rs"] = driver
	} else {
		files["src/main.rs"] = strings.Replace(rustLauncher, "{{package}}", rustText(c.Package), 1)
		files["src/driver.rs"] = driver
	}
	return Program{
		Command: []string{"cargo", "run", "--quiet", "--frozen", "--manifest-path", Dir + "/Cargo.toml"},
		Files:   files,
		Env: map[string]string{
			"CARGO_HOME":       scratch + "/cargo",
			"CARGO_TARGET_DIR": scratch + "/target",
			"CARGO_TERM_COLOR": "never",
		},
	}, nil
}

// rustCall is the call as an expression.
func rustCall(c Call, f function) string {
	literals := make([]string, len(f.parameters))
	for i, value := range arguments(c, f) {
		literals[i] = "None"
		if value != nil { // the type of None.into() is not known
			literals[i] = fmt.Sprintf(f.parameters[i].form, rustLiteral(value))
		}
	}
	return "::" + c.ImportPath + "::" + f.name + "(" + strings.Join(literals, ", ") + ")"
}

// rustLiteral is a value as an expression. A number with a sign is in parentheses, because methods
// bind closer.
func rustLiteral(value any) string {
	switch value := value.(type) {
	case bool:
		return strconv.FormatBool(value)
	case string:
		return rustText(value)
	case int64:
		return signed(strconv.FormatInt(value, 10))
	case float64:
		return signed(withPoint(value).String())
	case json.Number:
		return signed(value.String())
	case []any:
		items := make([]string, len(value))
		for i, item := range value {
			items[i] = rustLiteral(item)
		}
		return "vec![" + strings.Join(items, ", ") + "]"
	}
	return "None"
}

func signed(number string) string {
	if strings.HasPrefix(number, "-") {
		return "(" + number + ")"
	}
	return number
}

// rustText is a string literal in ASCII without control characters.
func rustText(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"', r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r < ' ', r > '~':
			fmt.Fprintf(&out, `\u{%x}`, r)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}
