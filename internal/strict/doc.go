// Package strict reads documents that people and programs write, in YAML or JSON,
// into structs, and says everything that is wrong with one at once: every unknown key
// and every wrong value with its line, its path and what is expected.
//
// It is stricter than the format. A key that is given twice, an alias, a tag and a second
// document are problems; so a document says what it means in one place, and a small text
// cannot stand for a large value.
package strict
