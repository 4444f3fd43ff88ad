// Package testlog reads what tests say of themselves: JUnit XML, the JSON lines of
// go test -json, TAP, and the summaries that pytest, unittest, go test and prove print.
//
// Everything it reads was written by the tested program or near it. So nothing of it is
// believed alone: reports that are cut, that contradict the printed summary or the exit
// code, or that break their own plan are told in [Report.Problem]. All readers stream,
// with bounded lines, depths, names, messages and numbers of cases.
package testlog
