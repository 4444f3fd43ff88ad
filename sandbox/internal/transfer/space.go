package transfer

import (
	"fmt"
	"strconv"
	"strings"
)

// Space is one look at the engine's disk.
type Space struct {
	// Free is what may still be written to the disk, in bytes.
	Free int64
	// Entries and Used are the entries below the folder, itself included, and
	// the bytes that they take on the disk. Used is not known (-1) when there are
	// too many entries to look at.
	Entries, Used int64
}

// Script is what the watcher's shell runs, with the folder and the number of
// entries that is too many as arguments. It does what the lines of its stdin say,
// so that the controller decides how often it looks, and ends with its stdin. It
// takes nothing but what every Linux image with a shell has (POSIX, BusyBox), and
// the names that it meets never become words of the shell.
const Script = `while read -r what; do
	cd "$1" || exit 1
	case $what in
	space)
		echo "free $(df -Pk . | tail -n 1)"
		n=$(find . -xdev | head -n "$2" | wc -l)
		echo "entries $n"
		if [ "$n" -lt "$2" ]; then echo "used $(du -skx . 2>/dev/null)"; else echo "used -"; fi
		;;
	list)
		for t in f d l p s b c; do find . -xdev -type $t -print0; printf '\000'; done
		;;
	esac
done
`

// spaceLines are the lines of one answer.
const spaceLines = 3

// ReadSpace reads the watcher's answer to "space" from its lines.
func ReadSpace(line func() (string, error)) (Space, error) {
	s := Space{Used: -1}
	for range spaceLines {
		text, err := line()
		if err != nil {
			return Space{}, err
		}
		if err := s.parse(text); err != nil {
			return Space{}, err
		}
	}
	return s, nil
}

// parse takes one line: "free " and a line of df -Pk, "entries " and a number,
// "used " and a line of du -sk.
func (s *Space) parse(text string) error {
	what, rest, _ := strings.Cut(text, " ")
	fields := strings.Fields(rest)
	switch {
	case what == "free" && len(fields) >= 5:
		// The device's name may hold spaces; the folder's does not.
		return number(text, fields[len(fields)-3], 1024, &s.Free)
	case what == "entries" && len(fields) == 1:
		return number(text, fields[0], 1, &s.Entries)
	case what == "used" && len(fields) > 0 && fields[0] == "-":
		return nil
	case what == "used" && len(fields) > 0:
		return number(text, fields[0], 1024, &s.Used)
	}
	return fmt.Errorf("%q is no answer", text)
}

// number reads a count of units; one that overflows is as good as endless.
func number(line, text string, unit int64, to *int64) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is no answer", line)
	}
	*to = min(n, (1<<62)/unit) * unit
	return nil
}
