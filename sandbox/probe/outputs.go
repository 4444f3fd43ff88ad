package probe

import "github.com/evalbox/evalbox/policy"

// listedByCopy and listedByUser are why pods have warnings that a directory of this machine has not.
const (
	listedByCopy = "the list of what is in the volume is bounded"
	listedByUser = "the user of the program lists the volume, and not root"
)

// outputRuns leave odd things in ./final.
func outputRuns() []Run { //nolint:funlen // a table
	const notRegular = "not a regular file"
	return []Run{
		{Group: "outputs", Name: "nothing", Python: "pass"},
		{Group: "outputs", Name: "files and directories", Deep: true, Want: Want{Outputs: []string{"a/b/c.txt 0644 3", "empty 0644 0", "submission.csv 0644 12"}}, Python: `
import os
os.makedirs('final/a/b'); os.makedirs('final/only/directories')
open('final/a/b/c.txt', 'w').write('abc'); open('final/empty', 'w'); open('final/submission.csv', 'w').write('id,y\n1,0.50\n')`},
		{Group: "outputs", Name: "links", Deep: true, Want: Want{Outputs: []string{"real 0644 4"}, Skipped: []string{"absolute symlink: " + notRegular, "dangling symlink: " + notRegular, "directory symlink: " + notRegular,
			"loop symlink: " + notRegular, "out symlink: " + notRegular, "self symlink: " + notRegular}}, Python: `
import os
os.chdir('final')
open('real', 'w').write('real')
os.symlink('/etc/passwd', 'absolute'); os.symlink('nowhere', 'dangling'); os.symlink('/etc', 'directory'); os.symlink('loop', 'loop')
os.symlink('../../../../../../etc/shadow', 'out'); os.symlink('real', 'self')`},
		{Group: "outputs", Name: "a link in place of a directory", Want: Want{Outputs: []string{"was/file 0644 1"}, Skipped: []string{"dir symlink: " + notRegular}}, Python: `
import os
os.makedirs('final/dir'); open('final/dir/file', 'w').write('x')
os.rename('final/dir', 'final/was'); os.symlink('/', 'final/dir')`},
		{Group: "outputs", Name: "a queue and a socket", Deep: true, Want: Want{Outputs: []string{"ok.csv 0644 1"}, Skipped: []string{"fifo fifo: " + notRegular, "socket socket: " + notRegular}},
			Under: []TraitWant{{Trait: "runsc", Why: "gVisor keeps a socket and a queue to itself", Want: Want{Outputs: []string{"ok.csv 0644 1"}}}}, Python: `
import os, socket
os.chdir('final')
os.mkfifo('fifo'); socket.socket(socket.AF_UNIX).bind('socket'); open('ok.csv', 'w').write('x')`},
		{Group: "outputs", Name: "a whiteout", Want: Want{Stdout: "made\n", Skipped: []string{"whiteout device: a whiteout: in a layer of an image it would hide another entry"}},
			Under: []TraitWant{{Trait: "runsc", Why: "gVisor has no whiteouts", Want: Want{Stdout: "EPERM\n"}}}, Python: `
import errno, os, stat
try: os.mknod('final/whiteout', stat.S_IFCHR | 0o600, 0); print('made')
except OSError as e: print(errno.errorcode[e.errno])`},
		{Group: "outputs", Name: "too deep", Limits: policy.Limits{OutputDepth: 3}, Want: Want{Outputs: []string{"a/b/ok 0644 1", "ok 0644 1"}, Skipped: []string{"/a/b/c/d directory: .*/"}}, Python: `
import os
os.makedirs('final/a/b/c/d/e'); open('final/a/b/c/d/e/lost', 'w').write('x'); open('final/a/b/ok', 'w').write('x'); open('final/ok', 'w').write('x')`},
		{Group: "outputs", Name: "thousands of levels", Want: Want{Outputs: []string{"ok.csv 0644 1"}, Skipped: []string{"/(d/)*d directory: .*/"}}, Python: `
import os
open('final/ok.csv', 'w').write('x')
os.chdir('final')
for i in range(2000):
    os.mkdir('d'); os.chdir('d')
open('bottom', 'w').write('x')`},
		{Group: "outputs", Name: "too many", Limits: policy.Limits{OutputFiles: 3}, Want: Want{Outputs: []string{"/. 0644 1/", "/. 0644 1/", "/. 0644 1/"}, Skipped: []string{"/. other: .*/"}},
			Under:  []TraitWant{{Trait: "pod", Why: listedByCopy, Want: Want{Outputs: []string{"/. 0644 1/", "/. 0644 1/", "/. 0644 1/"}, Skipped: []string{"/. other: .*/"}, Warnings: []string{"/final held more than could be listed: .*/"}}}},
			Python: "for name in 'abcdefgh': open('final/' + name, 'w').write('x')"},
		{Group: "outputs", Name: "a file too large", Limits: policy.Limits{OutputFile: 10}, Want: Want{Outputs: []string{"small 0644 10"}, Skipped: []string{"large file: larger than 10 bytes"}},
			Python: "open('final/large', 'w').write('x' * 11); open('final/small', 'w').write('x' * 10)"},
		{Group: "outputs", Name: "all files too large", Limits: policy.Limits{OutputTotal: 15}, Want: Want{Outputs: []string{"a 0644 10"}, Skipped: []string{"b file: all outputs together larger than 15 bytes"}},
			Python: "open('final/a', 'w').write('x' * 10); open('final/b', 'w').write('x' * 10)"},
		{Group: "outputs", Name: "names", Want: Want{Outputs: []string{`/(?s).* 0644 0/`, `/(?s).* 0644 0/`, `/(?s).* 0644 0/`, `/(?s).* 0644 0/`, `/(?s).* 0644 0/`, `/(?s).* 0644 0/`, `/(?s).* 0644 0/`, `/(?s).* 0644 0/`, `/(?s).* 0644 0/`}}, Python: `
import os
for name in (b'-rf', b'a\nb', b'\x1b[2J', b'\xff\xfe', 'caf\u00e9'.encode(), 'cafe\u0301'.encode(), '\u202etxt.exe'.encode(), b'x' * 255, b'Case'):
    os.close(os.open(b'final/' + name, os.O_CREAT, 0o644))`},
		{Group: "outputs", Name: "names of paths", Want: Want{Outputs: []string{"  0644 0", "%2e%2e%2f 0644 0", "...dots 0644 0", `C:\\evil 0644 0`, "~root 0644 0"}},
			Python: "for name in ('...dots', 'C:\\\\evil', '~root', '%2e%2e%2f', ' '): open('final/' + name, 'w')"},
		{Group: "outputs", Name: "set-user-ID", Deep: true, Want: Want{Outputs: []string{"group 2755 9", "user 4755 9"}}, Python: `
import os
for name, mode in (('user', 0o4755), ('group', 0o2755)):
    open('final/' + name, 'w').write('#!/bin/sh'); os.chmod('final/' + name, mode)`},
		{Group: "outputs", Name: "no rights", Want: Want{Outputs: []string{"dir/file 0644 1", "file 0000 1"}},
			Under: []TraitWant{{Trait: "pod", Why: listedByUser, Want: Want{Outputs: []string{"dir/file 0644 1", "file 0000 1"}, Warnings: []string{"/.*is not complete: find or du failed/"}}}}, Python: `
import os
os.mkdir('final/dir'); open('final/dir/file', 'w').write('x'); open('final/file', 'w').write('x')
os.chmod('final/file', 0); os.chmod('final/dir', 0)`},
		{Group: "outputs", Name: "no rights on final itself", Want: Want{Outputs: []string{"file 0644 1"}},
			Under:  []TraitWant{{Trait: "pod", Why: listedByUser, Want: Want{Outputs: []string{"file 0644 1"}, Warnings: []string{"/.*is not complete: find or du failed/"}}}},
			Python: "import os\nopen('final/file', 'w').write('x')\nos.chmod('final', 0)"},
		{Group: "outputs", Name: "two names of one file", Want: Want{Outputs: []string{"one 0644 1", "two 0644 1"}}, Python: "import os\nopen('final/one', 'w').write('x')\nos.link('final/one', 'final/two')"},
		{Group: "outputs", Name: "a writer that outlives its parent", Want: Want{Stdout: "done\n", Outputs: []string{"/log 0644 \\d+/"}}, Python: `
import os, time
if os.fork() == 0:
    os.setsid()
    with open('final/log', 'w') as f:
        while True: f.write('x'); f.flush()
while not os.path.exists('final/log'): time.sleep(0.01)
print('done')`},
		{Group: "outputs", Name: "attributes and rights by list", Want: Want{Stdout: "/(set|ENOTSUP|EPERM|EOPNOTSUPP)\n/", Outputs: []string{"file 0644 1"}}, Python: `
import errno, os
open('final/file', 'w').write('x')
try: os.setxattr('final/file', 'user.note', b'from the program'); print('set')
except OSError as e: print(errno.errorcode[e.errno])`},
		{Group: "outputs", Name: "archives", Want: Want{Outputs: []string{"/bomb.gz 0644 \\d+/", "/slip.tar 0644 \\d+/", "/slip.zip 0644 \\d+/"}}, Python: `
import gzip, io, tarfile, zipfile
with zipfile.ZipFile('final/slip.zip', 'w') as z: z.writestr('../../../../tmp/evalbox-slipped', 'x')
with tarfile.open('final/slip.tar', 'w') as t:
    info = tarfile.TarInfo('/tmp/evalbox-slipped'); info.size = 1
    t.addfile(info, io.BytesIO(b'x'))
with gzip.open('final/bomb.gz', 'wb') as f:
    for i in range(64): f.write(bytes(1 << 20))`},
		{Group: "outputs", Name: "times", Want: Want{Outputs: []string{"future 0644 0", "past 0644 0"}}, Python: `
import os
for name, t in (('past', 0), ('future', 1 << 33)):
    open('final/' + name, 'w'); os.utime('final/' + name, (t, t))`},
		{Group: "outputs", Name: "a directory nobody may change", Want: Want{Outputs: []string{"dir/file 0444 1"}}, Python: `
import os
os.mkdir('final/dir'); open('final/dir/file', 'w').write('x')
os.chmod('final/dir/file', 0o444); os.chmod('final/dir', 0o555)`},
		{Group: "outputs", Name: "files open to the world", Want: Want{Outputs: []string{"file 0666 1"}}, Python: "import os\nopen('final/file', 'w').write('x')\nos.chmod('final/file', 0o666); os.chmod('final', 0o777)"},
	}
}
