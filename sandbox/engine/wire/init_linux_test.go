package wire

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// programUID is the unused uid that init and the program have, as in a container. It is not
// that of containers, whose tests run at the same time: quotas are by user.
const programUID = 64640

// patience is the timeout of a container in a test; only a broken one reaches it.
const patience = 2 * time.Minute

// launchScript sets up PID 1 of a new namespace as in a container: /proc is that of the
// namespace, the counters of the machine's cgroup cannot be seen, the program's user owns the
// streams, as with runc, and root's privileges are dropped.
const launchScript = `mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs tmpfs /sys/fs/cgroup &&
	chown %[1]s /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 && exec %[2]s setpriv \
	--reuid %[1]s --regid %[1]s --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs "$@"`

// container is a real init in namespaces of its own, and the receiver of its streams.
type container struct {
	*Receiver
	t     *testing.T
	ctx   context.Context // the container's lifetime; stored in tests only
	cmd   *exec.Cmd
	stdin *os.File
	// control takes requests if init has the option -c 3.
	control *os.File
	nonce   Nonce
	// Where the program's output goes.
	stdout, stderr io.Writer
	outText        bytes.Buffer
	errText        bytes.Buffer
	waited         bool
	code           int
}

// initPath is a copy of init's binary that the program's user can execute.
func initPath(t *testing.T) string {
	t.Helper()
	binary, err := Init(runtime.GOARCH)
	require.NoError(t, err)
	path := filepath.Join(publicDir(t), "sandbox-init")
	require.NoError(t, os.WriteFile(path, binary, 0o755)) // the program's user executes it
	return path
}

// publicDir is a directory that the program's user can access.
func publicDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		require.NoError(t, os.Chmod(d, 0o755)) // as above
	}
	return dir
}

// newContainer starts init with arguments.
func newContainer(t *testing.T, arguments ...string) *container {
	t.Helper()
	return tappedContainer(t, "", (*Receiver).Stdout, arguments...)
}

// tappedContainer writes init's stdout to the writer that tap returns. If not empty, limits is
// a command that starts init under further limits.
func tappedContainer(t *testing.T, limits string, tap func(*Receiver) io.Writer, arguments ...string) *container {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	uid, flags := strconv.Itoa(programUID), uintptr(syscall.CLONE_NEWPID|syscall.CLONE_NEWNS)
	attr := &syscall.SysProcAttr{Cloneflags: flags}
	if os.Getuid() != 0 {
		// A user namespace of an unprivileged user has one user.
		uid = "0"
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	script := fmt.Sprintf(launchScript, uid, limits)
	if os.Getuid() != 0 {
		script = strings.Replace(script, "--clear-groups", "--keep-groups --securebits=+noroot", 1)
	}
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, "sh", initPath(t)}, arguments...)...)
	cmd.SysProcAttr = attr
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "OF_INIT=1", "OF_BOTH=init"}
	in, stdin, err := os.Pipe()
	require.NoError(t, err)
	c := &container{Receiver: NewReceiver(), t: t, ctx: ctx, cmd: cmd, stdin: stdin, nonce: NewNonce()}
	c.stdout, c.stderr = &c.outText, &c.errText
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, tap(c.Receiver), c.Receiver.Stderr()
	requests, control, err := os.Pipe()
	require.NoError(t, err)
	cmd.ExtraFiles, c.control = []*os.File{requests}, control
	require.NoError(t, cmd.Start())
	in.Close()
	requests.Close()
	t.Cleanup(func() {
		cancel()
		stdin.Close()
		control.Close()
		c.wait()
	})
	return c
}

// wait waits until init has ended, closes the receiver and returns the exit code.
func (c *container) wait() int {
	if !c.waited {
		c.waited = true
		err := c.cmd.Wait() // the caller checks the exit code
		c.Receiver.Close(err)
		c.code = c.cmd.ProcessState.ExitCode()
	}
	return c.code
}

// ready waits for the ready frame.
func (c *container) ready() Ready {
	c.t.Helper()
	ready, err := c.Ready(c.ctx)
	require.NoError(c.t, err, "%s", c.Complaint())
	return ready
}

func (c *container) send(p []byte) {
	c.t.Helper()
	_, err := c.stdin.Write(p)
	require.NoError(c.t, err)
}

// begin sends a job and waits until it was accepted.
func (c *container) begin(job Job) {
	c.t.Helper()
	c.ready()
	job.Nonce = c.nonce
	if job.Dir == "" {
		job.Dir = "/"
	}
	job.Rlimits = append(job.Rlimits, Rlimit{Resource: syscall.RLIMIT_CORE})
	c.Begin(c.nonce, c.stdout, c.stderr)
	frame, err := job.Encode()
	require.NoError(c.t, err)
	c.send(frame)
	require.NoError(c.t, c.Accepted(c.ctx))
}

// end waits for the report.
func (c *container) end() Report {
	c.t.Helper()
	report, err := c.End(c.ctx)
	require.NoError(c.t, err)
	out, errSeen := marksSeen(c.Receiver)
	require.True(c.t, out && errSeen)
	require.NotContains(c.t, c.outText.String(), string(c.nonce[nonceSize-8:]))
	require.NotContains(c.t, c.errText.String(), string(c.nonce[nonceSize-8:]))
	return report
}

// bye releases init and returns its exit code.
func (c *container) bye() int {
	c.t.Helper()
	c.send(newFrame(typeBye, nil))
	return c.wait()
}

// run runs a job in a new container, up to its report.
func run(t *testing.T, job Job) (c *container, report Report) {
	t.Helper()
	c = newContainer(t)
	c.begin(job)
	return c, c.end()
}

// sh and python are jobs that run a script.
func sh(script string) Job { return Job{Args: []string{"sh", "-c", script}} }

func python(script string) Job { return Job{Args: []string{"python3", "-u", "-c", script}} }

// requireExit checks for a normal exit with a code.
func requireExit(t *testing.T, c *container, report Report, code int) {
	t.Helper()
	require.Equal(t, Exited, report.Kind, "%v %d\n%s%s", report.Stage, report.Value, c.outText.String(), c.errText.String())
	require.Equal(t, code, report.Value, "%s%s", c.outText.String(), c.errText.String())
	require.Equal(t, StopNone, report.Stop)
	require.Zero(t, report.ProcessesLeft)
}

// TestConversation is a complete run: the ready frame, a job with stdin, the report.
func TestConversation(t *testing.T) {
	dir := publicDir(t)
	witness := filepath.Join(dir, "witness")
	require.NoError(t, os.WriteFile(witness, nil, 0o644)) // the program's user reads it
	c := newContainer(t, "-s", "/", "-w", witness, "-s", dir+"/missing", "-s", "/proc/self")
	ready := c.ready()
	require.Equal(t, BuildID(), ready.Build)
	require.True(t, ready.NoNewPrivs)
	require.Zero(t, ready.CapBounding|ready.CapEffective|ready.CapPermitted)
	require.Zero(t, ready.Witness)
	require.NotEmpty(t, ready.Machine)
	require.Len(t, ready.BootID, 36)
	require.Contains(t, ready.Interfaces, "lo")
	require.Contains(t, ready.Rlimits, "Max open files")
	proc, found := ready.MountAt("/proc")
	require.True(t, found)
	require.Equal(t, "proc", proc.FSType)
	var root syscall.Stat_t
	require.NoError(t, syscall.Lstat("/", &root))
	require.Equal(t, root.Ino, ready.Stats["/"].Ino)
	require.Equal(t, root.Dev, ready.Stats["/"].Dev)
	require.Equal(t, root.Mode, ready.Stats["/"].Mode)
	require.Equal(t, time.Unix(root.Ctim.Sec, root.Ctim.Nsec), ready.Stats["/"].Ctime)
	require.Equal(t, syscall.ENOENT, ready.Stats[dir+"/missing"].Errno)
	require.Equal(t, uint32(syscall.S_IFLNK), ready.Stats["/proc/self"].Mode&syscall.S_IFMT)
	if os.Getuid() == 0 {
		require.Equal(t, programUID, ready.UID)
		require.Equal(t, programUID, ready.GID)
	}

	job := sh("echo $A $OF_INIT $OF_BOTH; echo no >&2; cat; kill -SEGV $$")
	job.Env, job.Timeout, job.Stdin = []string{"OF_BOTH=x", "A=1", "OF_BOTH=job"}, time.Minute, true
	c.begin(job)
	in := InputWriter(c.stdin)
	text := strings.Repeat("x", 200_000)
	_, err := io.Copy(in, strings.NewReader(text))
	require.NoError(t, err)
	require.NoError(t, in.Close())
	before := time.Now()
	report := c.end()
	require.Equal(t, Signaled, report.Kind)
	require.Equal(t, int(syscall.SIGSEGV), report.Value)
	require.Equal(t, "1 1 job\n"+text, c.outText.String())
	require.Equal(t, "no\n", c.errText.String())
	require.Positive(t, report.Wall)
	require.Positive(t, report.Usage.PeakMemory)
	require.False(t, report.Abandoned)
	require.WithinDuration(t, before, report.Finished, time.Minute)
	require.InDelta(t, report.Wall.Seconds(), report.Finished.Sub(report.Started).Seconds(), 1)
	require.Equal(t, 139, c.bye())
}

// TestFramesEndWithALine: an engine that keeps whole lines has the frames in front of the output in
// its log, even if it dies.
func TestFramesEndWithALine(t *testing.T) {
	var raw bytes.Buffer
	c := tappedContainer(t, "", func(r *Receiver) io.Writer { return io.MultiWriter(&raw, r.Stdout()) })
	c.begin(sh("printf output"))
	requireExit(t, c, c.end(), 0)
	require.Zero(t, c.bye())
	accepted := slices.Concat([]byte{'\n'}, magic[:], []byte{formatVersion, byte(typeAccepted)})
	require.Equal(t, 1, bytes.Count(raw.Bytes(), accepted))
	require.Equal(t, 1, bytes.Count(raw.Bytes(), []byte("\noutput")))
}

// TestNotStarted checks the stage, the errno, and the exit code (as in shells) of programs that
// cannot be executed.
func TestNotStarted(t *testing.T) {
	dir := publicDir(t)
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	plain := write("plain", "echo", 0o666)
	noInterpreter := write("no-interpreter", "#!/missing/interpreter\n", 0o755)
	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink(loop, loop))
	const command = "printf" // a command that exists
	tests := map[string]struct {
		job   Job
		stage string
		errno syscall.Errno
		code  int
	}{
		"no interpreter":       {Job{Args: []string{noInterpreter}}, "exec", syscall.ENOENT, 127},
		"link to itself":       {Job{Args: []string{loop}}, "exec", syscall.ELOOP, 126},
		"long name":            {Job{Args: []string{strings.Repeat("n", 256)}}, "exec", syscall.ENAMETOOLONG, 126},
		"denied in PATH":       {Job{Args: []string{"plain"}, Env: []string{"PATH=/missing:" + dir + ":/missing"}}, "exec", syscall.EACCES, 126},
		"a file in PATH":       {Job{Args: []string{"x"}, Env: []string{"PATH=/etc/passwd"}}, "exec", syscall.ENOTDIR, 127},
		"no directory":         {Job{Args: []string{command}, Dir: "/missing"}, "chdir", syscall.ENOENT, 127},
		"not a directory":      {Job{Args: []string{command}, Dir: "/etc/passwd"}, "chdir", syscall.ENOTDIR, 127},
		"limit above the hard": {Job{Args: []string{command}, Rlimits: []Rlimit{{Resource: syscall.RLIMIT_NOFILE, Soft: 1 << 40, Hard: 1 << 40}}}, "rlimit", syscall.EPERM, 126},
		"lower OOM score":      {Job{Args: []string{command}, OOMScoreAdj: -1000}, "oom score", syscall.EACCES, 126},
		// The kernel gives ports above 32767 to connections of other tests.
		"no socket":    {Job{Args: []string{command}, Relay: &Relay{Port: 10404, Connections: 1, Socket: "/missing.sock"}}, "relay", syscall.ENOENT, 127},
		"not a socket": {Job{Args: []string{command}, Relay: &Relay{Port: 10405, Connections: 1, Socket: plain}}, "relay", syscall.ECONNREFUSED, 126},
		"port of root": {Job{Args: []string{command}, Relay: &Relay{Port: 7, Connections: 1, Socket: plain}}, "relay", syscall.EACCES, 126},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, report := run(t, test.job)
			require.Equal(t, NotStarted, report.Kind, "%d", report.Value)
			assert.Equal(t, test.stage, report.Stage.String())
			assert.Equal(t, test.errno, report.Errno(), "%v", report.Errno())
			if test.stage == "rlimit" {
				assert.Equal(t, uint32(syscall.RLIMIT_NOFILE), report.Resource)
			}
			assert.Equal(t, test.code, c.bye())
			assert.Empty(t, c.outText.String()+c.errText.String())
		})
	}
}

// TestSearch checks that a command is looked up as in C libraries.
func TestSearch(t *testing.T) {
	dir := publicDir(t)
	script := filepath.Join(dir, "script")
	require.NoError(t, os.WriteFile(script, []byte("echo \"$0 $*\"; exit 5\n"), 0o755)) // the program's user executes it
	tests := map[string]struct {
		job  Job
		code int
		out  string
	}{
		"in the second place":   {Job{Args: []string{"script", "a", ""}, Env: []string{"PATH=/missing:" + dir}}, 5, script + " a \n"},
		"an empty entry":        {Job{Args: []string{"script"}, Env: []string{"PATH=/missing::"}, Dir: dir}, 5, "script \n"},
		"an empty PATH":         {Job{Args: []string{"script"}, Env: []string{"PATH="}, Dir: dir}, 5, "script \n"},
		"with a slash":          {Job{Args: []string{"./script", "b"}, Dir: dir}, 5, "./script b\n"},
		"no binary, not script": {Job{Args: []string{script}}, 5, script + " \n"},
		"a name of its own":     {Job{Args: []string{"printf", "%s", "x y"}}, 0, "x y"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, report := run(t, test.job)
			requireExit(t, c, report, test.code)
			require.Equal(t, test.out, c.outText.String())
		})
	}
}

// TestProgramIsPrepared checks what the program inherits from init.
func TestProgramIsPrepared(t *testing.T) {
	job := python(`
import os, resource, signal
print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))
print(open('/proc/self/oom_score_adj').read().strip())
print(os.getcwd(), os.getpgid(0) == os.getpid(), os.getppid())
print(sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:-1])
print(os.readlink('/proc/self/fd/0'), os.read(0, 1))
print([l.split()[1] for l in open('/proc/self/status') if l[:6] in ('SigBlk', 'SigIgn', 'SigPnd', 'ShdPnd')])
print(os.access('/proc/self/mem', os.W_OK), os.environ.get('OF_INIT'))
`)
	job.Dir, job.OOMScoreAdj, job.Rlimits = "/usr", 300, []Rlimit{{Resource: syscall.RLIMIT_NOFILE, Soft: 50, Hard: 60}}
	c, report := run(t, job)
	requireExit(t, c, report, 0)
	require.Equal(t, `(50, 60) (0, 0)
300
/usr True 1
[0, 1, 2]
/dev/null b''
['0000000000000000', '0000000000000000', '0000000000000000', '0000000001001000']
True 1
`, c.outText.String())
}

// TestOpenFilesLimitOfNothing checks that the second stage opens no file after it has set the
// limits.
func TestOpenFilesLimitOfNothing(t *testing.T) {
	job := Job{Args: []string{"/bin/true"}, OOMScoreAdj: 1, Rlimits: []Rlimit{{Resource: syscall.RLIMIT_NOFILE}}}
	_, report := run(t, job)
	require.Equal(t, Exited, report.Kind) // the dynamic loader may fail to open libraries
}

// TestNoFork calls the kernel in every way. The table of ends has what libraries do.
func TestNoFork(t *testing.T) {
	job := python(`
import ctypes, errno, mmap, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def name(r):
    return errno.errorcode[ctypes.get_errno()] if r < 0 else r
def call(*args):
    ctypes.set_errno(0)
    r = name(libc.syscall(*args))
    if r == 0: os._exit(99)   # a child
    return r
if platform.machine() == 'x86_64':
    clone, clone3, forks, x32 = 56, 435, (57, 58), 0x40000000
else:
    clone, clone3, forks, x32 = 220, 435, (), 0
print('clone', call(clone, 17, 0, 0, 0, 0), call(clone, 0x4000 | 0x100 | 17, 0, 0, 0, 0))
print('clone3', call(clone3, 0, 0))
for n in forks: print('fork', call(n), call(n | x32))
if x32:
    print('x32', call(clone | x32, 17, 0, 0, 0, 0), call(clone3 | x32, 0, 0))
    m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    at = ctypes.addressof(ctypes.c_char.from_buffer(m))
    m[:6] = b'\xb8\x14\0\0\0\xc3'  # mov eax, 20; ret
    print('own code', ctypes.CFUNCTYPE(ctypes.c_int)(at)(), flush=True)
    for n in (2, 190, 120, 435):  # mov eax, n; mov ebx, 17; xor ecx...; int 0x80
        m[:] = (b'\x53\xb8' + n.to_bytes(4, 'little') + b'\xbb\x11\0\0\0\x31\xc9\x31\xd2\x31\xf6\x31\xff\xcd\x80\x5b\xc3').ljust(4096, b'\0')
        r = ctypes.CFUNCTYPE(ctypes.c_int)(at)()
        if r == 0: os._exit(99)
        print('i386', errno.errorcode[-r] if r < 0 else r)
`)
	job.NoFork = true
	c, report := run(t, job)
	want := "clone EPERM EPERM\nclone3 ENOSYS\n"
	if runtime.GOARCH == "amd64" {
		want += "fork EPERM EPERM\nfork EPERM EPERM\nx32 EPERM ENOSYS\nown code 20\n"
	}
	if runtime.GOARCH == "amd64" && report.Kind == Signaled { // a kernel without 32-bit calls
		require.Equal(t, int(syscall.SIGSEGV), report.Value, c.outText.String())
		require.Equal(t, want, c.outText.String())
		return
	}
	requireExit(t, c, report, 0)
	if runtime.GOARCH == "amd64" {
		want += "i386 EPERM\ni386 EPERM\ni386 EPERM\ni386 ENOSYS\n"
	}
	require.Equal(t, want, c.outText.String())
}

func itoa(n uint16) string { return strconv.Itoa(int(n)) }
