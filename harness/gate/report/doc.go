// Package report tells a gate to other programs and to people: [JUnit] for CI systems
// that show test cases, [Markdown] for a page of a pull request or a job.
//
// Both are pure and deterministic: equal evidence gives equal bytes. They hold no times,
// since evidence has none. Everything that the tests themselves wrote (names, messages)
// is shortened and made harmless: it cannot become markup, a link or a control sequence.
package report
