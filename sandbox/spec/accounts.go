package spec

import "strings"

// AccountFile is a file that names users or groups, see passwd(5) and group(5).
type AccountFile struct {
	Role, Target, Text string
}

// UserName is the name of the program's user and group, unless Debian has a name for their IDs.
const UserName = "sandbox"

// Users and groups of every Debian system: the master files of its package base-passwd.
const (
	baseUsers = `root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
sys:x:3:3:sys:/dev:/usr/sbin/nologin
sync:x:4:65534:sync:/bin:/bin/sync
games:x:5:60:games:/usr/games:/usr/sbin/nologin
man:x:6:12:man:/var/cache/man:/usr/sbin/nologin
lp:x:7:7:lp:/var/spool/lpd:/usr/sbin/nologin
mail:x:8:8:mail:/var/mail:/usr/sbin/nologin
news:x:9:9:news:/var/spool/news:/usr/sbin/nologin
uucp:x:10:10:uucp:/var/spool/uucp:/usr/sbin/nologin
proxy:x:13:13:proxy:/bin:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
backup:x:34:34:backup:/var/backups:/usr/sbin/nologin
list:x:38:38:Mailing List Manager:/var/list:/usr/sbin/nologin
irc:x:39:39:ircd:/run/ircd:/usr/sbin/nologin
_apt:x:42:65534::/nonexistent:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`
	baseGroups = `root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
adm:x:4:
tty:x:5:
disk:x:6:
lp:x:7:
mail:x:8:
news:x:9:
uucp:x:10:
man:x:12:
proxy:x:13:
kmem:x:15:
dialout:x:20:
fax:x:21:
voice:x:22:
cdrom:x:24:
floppy:x:25:
tape:x:26:
sudo:x:27:
audio:x:29:
dip:x:30:
www-data:x:33:
backup:x:34:
operator:x:37:
list:x:38:
irc:x:39:
src:x:40:
shadow:x:42:
utmp:x:43:
video:x:44:
sasl:x:45:
plugdev:x:46:
staff:x:50:
games:x:60:
users:x:100:
nogroup:x:65534:
`
)

// AccountFiles are the files of a container whose program has a user, as uid:gid, in which
// programs look up the names of users and groups: all of Debian, and the program's own. Node,
// git and Python's pwd fail for a user without a name. Users that an image adds have none.
func AccountFiles(user string) []AccountFile {
	uid, gid, _ := strings.Cut(user, ":")
	return []AccountFile{
		{RolePasswd, "/etc/passwd", withID(baseUsers, uid, UserName+":x:"+uid+":"+gid+"::"+TmpDir+":/bin/sh\n")},
		{RoleGroup, "/etc/group", withID(baseGroups, gid, UserName+":x:"+gid+":\n")},
	}
}

// withID adds a line for an ID to a file, unless the file has one.
func withID(file, id, line string) string {
	if strings.Contains(file, ":x:"+id+":") {
		return file
	}
	return file + line
}
