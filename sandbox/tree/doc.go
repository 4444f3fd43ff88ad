// Package tree copies folders of a caller for a program to change, tells
// afterwards what the program changed, and carries the changes over to the folder
// that was copied. The folder of the caller is trusted but may change meanwhile;
// what the program left is not trusted at all.
package tree
