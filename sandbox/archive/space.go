package archive

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Space is one measurement of the engine's disk.
type Space struct {
	// Free is the space on the disk that is not used, in bytes.
	Free int64
	// Entries and Used are the entries below the directory, itself included, and the
	// bytes that they use on the disk. Used is -1 (unknown) if there are too many
	// entries to add up.
	Entries, Used int64
	// TooDeep says that there are paths longer than the image's programs can follow:
	// those of BusyBox stop at 4096 bytes. Used is then unknown.
	TooDeep bool
}

// Script is the shell script of the disk monitor. Its arguments are a directory and the
// number of entries that is too many. It answers the questions on its stdin, one per line,
// so that the controller decides how often it measures, and ends with its stdin:
//
//	free        free space; the directory need not exist yet
//	space       free space, entries and used space
//	list DIR    the names below DIR, a directory in that directory
//
// It needs only commands that every Linux image with a shell has (POSIX, BusyBox). The names
// of files never become words of the shell.
//
// find and du do not count entries that they cannot read, so the script reads their
// messages. A file that vanished meanwhile is ignored, a path that is too long is reported
// as such, and any other message makes the measurement invalid.
const Script = `LC_ALL=C
export LC_ALL
worst() {
	found=
	while IFS= read -r line; do
		case $line in
		*": No such file or directory") ;;
		*": File name too long" | *": Filename too long") found=deep ;;
		*)
			found=${found:-failed}
			printf '%s\n' "$line" >&2
			;;
		esac
	done
	printf %s "$found"
}
whole() {
	"$@"
	[ $? -lt 128 ] || echo "$1 was killed" >&2
}
while read -r what where; do
	[ "$what" = free ] || cd "$1" || exit 1
	case $what in
	free)
		echo "free $(df -Pk "${1%/*}" | tail -n 1)"
		;;
	space)
		echo "free $(df -Pk . | tail -n 1)"
		got=$({ { whole find . -xdev | head -n "$2" | echo $(wc -l) >&3; } 2>&1 | worst >&3; } 3>&1)
		n=${got%%[!0-9]*}
		echo "entries $n"
		if [ "$n" -ge "$2" ]; then
			got=-
		elif [ "$got" = "$n" ]; then
			got=$({ whole du -skx . 2>&1 >&3 | worst >&3; } 3>&1)
		fi
		case $got in
		*deep) echo "used deep" ;;
		*failed) echo "used failed" ;;
		*) echo "used $got" ;;
		esac
		;;
	list)
		cd "$1/$where" || exit 1
		for t in f d l p s b c; do find . -xdev -type $t -print0; printf '\000'; done
		;;
	esac
done
`

// spaceLines is the number of lines in an answer to "space".
const spaceLines = 3

// ReadFree reads the disk monitor's answer to "free" from a line: the free space, in bytes.
func ReadFree(line func() (string, error)) (int64, error) {
	text, err := line()
	if err != nil {
		return 0, err
	}
	if !strings.HasPrefix(text, "free ") {
		return 0, fmt.Errorf("%q is not an answer", text)
	}
	var s Space
	err = s.parse(text)
	return s.Free, err
}

// ReadSpace reads the disk monitor's answer to "space" from its lines.
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
		// The name of the device may hold spaces, that of the directory does not.
		return number(text, fields[len(fields)-3], 1024, &s.Free)
	case what == "entries" && len(fields) == 1:
		return number(text, fields[0], 1, &s.Entries)
	case what == "used" && len(fields) > 0 && fields[0] == "-":
		return nil
	case what == "used" && len(fields) == 1 && fields[0] == "deep":
		s.TooDeep = true
		return nil
	case what == "used" && len(fields) == 1 && fields[0] == "failed":
		return errors.New("find or du failed")
	case what == "used" && len(fields) > 0:
		return number(text, fields[0], 1024, &s.Used)
	}
	return fmt.Errorf("%q is not an answer", text)
}

// number reads a count of units. A count that would overflow becomes a very large one.
func number(line, text string, unit int64, to *int64) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not an answer", line)
	}
	*to = min(n, (1<<62)/unit) * unit
	return nil
}
