package ends

// streamAttacks are programs that leave stdout and stderr in a difficult state. Init must still end
// both with its marks, behind all output.
func streamAttacks() []Program {
	const fill = `
def fill(fd):
    os.set_blocking(fd, False)
    n = 0
    while True:
        try: n += os.write(fd, b'x' * 1000)
        except BlockingIOError:
            if n > 100: return
`
	const (
		last   = `/(?s).*last/`
		filled = `/x+/`
	)
	return []Program{
		{Name: "streams closed", Python: "os.write(1, b'last'); os.close(1); os.close(2); os._exit(42)", Stdout: last},
		{Name: "streams duplicated", Python: "[os.dup(1 + i % 2) for i in range(100)]; os.dup2(1, 2); os.write(2, b'last'); os._exit(42)", Stdout: last},
		{Name: "streams swapped", Python: "os.dup2(1, 9); os.dup2(2, 1); os.dup2(9, 2); os.write(2, b'last'); os._exit(42)", Stdout: last},
		{Name: "streams full, non-blocking", Python: fill + "fill(1); fill(2); os._exit(42)", Stdout: filled},
		{Name: "streams full, of one page", Python: fill + "[fcntl.fcntl(fd, 1031, 4096) for fd in (1, 2)]; fill(1); fill(2); os._exit(42)", Stdout: filled},
		{Name: "streams full, of 1 MiB", Python: fill + "[fcntl.fcntl(fd, 1031, 1 << 20) for fd in (1, 2)]; fill(1); fill(2); os._exit(42)", Stdout: filled},
		{Name: "streams of packets", Stdout: "lastlastlastlastlastlastlastlastlast",
			Python: "[fcntl.fcntl(fd, fcntl.F_SETFL, os.O_DIRECT | os.O_WRONLY) for fd in (1, 2)]; [os.write(1, b'last') for i in range(9)]; os._exit(42)"},
		{Name: "streams that append", Stdout: last,
			Python: "[fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK) for fd in (1, 2)]; os.write(1, b'last'); os._exit(42)"},
		{Name: "killed in a write", Python: fill + "fill(1); os.write(2, b'last'); os.kill(0, 9)", Signal: 9, Stdout: filled},
		// Output that the program itself reads does not reach the controller.
		{Name: "a stream that its writer reads", Stdout: `/(last)?/`,
			Python: "r = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK); os.write(1, b'last'); attempt(os.read, r, 99); os._exit(42)"},
		// If the program could steal the answer to the job, it would have the beginning of the
		// nonce.
		{Name: "frames and guessed nonces", Stdout: `/(?s).*\x00EBX\x01\x03.*last/`, Python: `
r = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)
stolen = attempt(os.read, r, 65536)
shown = stolen[-8:] if isinstance(stolen, bytes) else os.urandom(8)
def field(tag, value): return struct.pack('II', tag, len(value)) + value
def frame(kind, payload): return b'\0EBX\1' + struct.pack('<BHI', kind, 0, len(payload)) + payload
number = lambda tag, n: field(tag, struct.pack('I', n))
report = frame(3, number(1, 1) + number(2, 0) + field(4, bytes(8)) + field(5, bytes(24)) + b''.join(number(n, 0) for n in (6, 7, 8, 11)))
for nonce in [bytes(32), shown + bytes(24), shown * 4] + [shown + os.urandom(24) for i in range(300)]:
    for fd in (1, 2): os.write(fd, nonce + report + b'\n' + nonce + b'\n')
for kind in (1, 2, 3, 4, 16, 17, 18):
    for fd in (1, 2): os.write(fd, frame(kind, b'') + frame(kind, field(1, shown)) + frame(kind, field(1, shown))[:-1])
os.write(2, b'\0EBX')
os.write(1, shown + b'last')
os._exit(42)`},
		{Name: "a child that writes on", Stdout: `/[child\n]*last(?s:.*)/`, Python: `
if os.fork() == 0:
    while True: os.write(1, b'child\n')
os.write(1, b'last'); os._exit(42)`},
		{Name: "many children that write on", Stdout: `/(?s).*last.*/`, Python: `
for i in range(20):
    if fork() == 0:
        while True: os.write(1, b'child\n'); os.write(2, b'child\n')
os.write(1, b'last'); os._exit(42)`},
		{Name: "a grandchild with a session of its own", Stdout: `/[grandchild\n]*last(?s:.*)/`, Python: `
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for s in range(1, 65):
            try: signal.signal(s, signal.SIG_IGN)
            except (OSError, ValueError): pass
        os.write(1, b'last')
        os.write(w, b'x')
        while True: os.write(1, b'grandchild\n')
    os._exit(0)
os.read(r, 1)
os._exit(42)`},
		{Name: "a sibling", Stdout: `/(?s).*last.*/`, Python: `
if call(CLONE, 0x8000 | 17, 0, 0, 0, 0) == 0:  # CLONE_PARENT
    while True: os.write(1, b'sibling\n')
os.write(1, b'last'); os._exit(42)`},
		{Name: "children that end all the time", Stdout: last, Python: `
for i in range(4):
    if fork() == 0:
        while True:
            if fork() == 0: os._exit(0)
            if fork() == 0:
                if fork() == 0: os._exit(0)
                os._exit(0)
            while attempt(os.waitid, os.P_ALL, 0, os.WEXITED | os.WNOHANG) not in (None, 'ECHILD'): pass
os.write(1, b'last'); os._exit(42)`},
	}
}
