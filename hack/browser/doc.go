// Package browser has the tests of `sandbox browse` and of reports in a real browser, under the build
// tag "browser": make test-browser.
package browser
