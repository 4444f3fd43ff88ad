// Package browser has the tests of `sandbox browse` in a real browser, under the build tag
// "browser": make test-browser.
package browser
