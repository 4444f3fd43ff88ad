// Package terminal keeps untrusted text from driving the operator's terminal.
//
// A program can print control sequences that clear the screen, forge a prompt,
// set the window's title or write the clipboard, and so can the names of its
// files and the text of its exceptions. [Writer] and [Text] make all of them
// visible; nothing is dropped without a trace.
package terminal
