# What honest programs need, and what must keep working.


#= 285
def processes_by_fork():
    import multiprocessing
    with multiprocessing.get_context("fork").Pool(3) as pool:
        return sum(pool.map(square, range(10)))


# The children import the program by its path.
#= 285
def processes_by_spawn():
    return by_file("spawn")


#= 285
def processes_by_a_fork_server():
    return by_file("forkserver")


def square(x):
    return x * x


def by_file(method):
    import subprocess
    with open("/work/by_%s.py" % method, "w") as f:
        f.write("import multiprocessing\ndef square(x): return x * x\nif __name__ == '__main__':\n"
                "    with multiprocessing.get_context(%r).Pool(2) as pool: print(sum(pool.map(square, range(10))))\n" % method)
    p = subprocess.run([sys.executable, "/work/by_%s.py" % method], capture_output=True, text=True)
    return p.stdout.strip() or p.stderr[-500:]


#= 10
def queue_between_processes():
    import multiprocessing
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=queue.put, args=(n,)) for n in range(5)]
    for c in children:
        c.start()
    total = sum(queue.get(timeout=20) for _ in children)
    for c in children:
        c.join()
    return total


#= {'a': 1}
def manager_of_shared_objects():
    import multiprocessing
    with multiprocessing.get_context("fork").Manager() as manager:
        shared = manager.dict()
        shared["a"] = 1
        return dict(shared)


#= b'shared'
def shared_memory_by_name():
    from multiprocessing import shared_memory
    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    try:
        child = os.fork()
        if child == 0:
            other = shared_memory.SharedMemory(name=block.name)
            other.buf[:6] = b"shared"
            os._exit(0)
        os.waitpid(child, 0)
        return bytes(block.buf[:6])
    finally:
        block.close()
        block.unlink()


#= 300
def locks_between_processes():
    import multiprocessing
    context = multiprocessing.get_context("fork")
    value = context.Value("i", 0)
    def add():
        for _ in range(100):
            with value.get_lock():
                value.value += 1
    children = [context.Process(target=add) for _ in range(3)]
    for c in children:
        c.start()
    for c in children:
        c.join()
    return value.value


#= 64 threads
def many_threads():
    import threading
    done = []
    threads = [threading.Thread(target=done.append, args=(n,)) for n in range(64)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return "%d threads" % len(done)


#= [0, 1, 4, 9]
def pool_of_threads():
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(square, range(4)))


#= b'hello'
def asyncio_with_a_process():
    import asyncio
    async def main():
        p = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        out, _ = await p.communicate(b"hello")
        return out
    return asyncio.run(main())


#= b'HELLO'
def asyncio_with_a_server():
    import asyncio
    async def serve(reader, writer):
        writer.write((await reader.read(100)).upper())
        writer.close()
    async def main():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(b"hello")
        answer = await reader.read(100)
        writer.close()
        server.close()
        return answer
    return asyncio.run(main())


def echo(family, address, kind):
    import socket
    with socket.socket(family, kind) as server, socket.socket(family, kind) as client:
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen()
        client.settimeout(10)
        client.connect(server.getsockname())
        client.send(b"x")
        if kind == socket.SOCK_STREAM:
            return server.accept()[0].recv(10)
        return server.recv(10)


#= b'x' b'x'
def loopback_of_version_4():
    import socket
    return "%s %s" % (echo(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_STREAM), echo(socket.AF_INET, ("127.0.0.9", 0), socket.SOCK_DGRAM))


#= b'x' b'x'
def loopback_of_version_6():
    import socket
    return "%s %s" % (echo(socket.AF_INET6, ("::1", 0), socket.SOCK_STREAM), echo(socket.AF_INET6, ("::1", 0), socket.SOCK_DGRAM))


#= b'x' b'x'
#=runsc b'x' b'x'
def sockets_by_path_and_name():
    import socket
    return "%s %s" % (echo(socket.AF_UNIX, "/tmp/probe.sock", socket.SOCK_STREAM), echo(socket.AF_UNIX, "\0probe", socket.SOCK_STREAM))


#= 127.0.0.1
def localhost_by_name():
    import socket
    found = {a[4][0] for a in socket.getaddrinfo("localhost", 80)}
    return "127.0.0.1" if "127.0.0.1" in found and found <= {"127.0.0.1", "::1"} else found


# The name of a pod has the address of the pod.
#= True
#=runsc [Errno -3] Temporary failure in name resolution
#=pod False
def own_name_resolves():
    import socket
    try:
        return socket.gethostbyname(socket.gethostname()).startswith("127.")
    except OSError as e:
        return e


#= 200
def web_server_of_its_own():
    import http.server
    import threading
    import urllib.request
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with urllib.request.urlopen("http://localhost:%d/" % server.server_port, timeout=10) as answer:
        return answer.status


# A distributed training has its workers meet at a store on the loopback device.
#= 3
def workers_that_meet():
    import socket
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    for n in range(3):
        if os.fork() == 0:
            with socket.create_connection(("localhost", port), 10) as s:
                s.sendall(b"%d" % n)
            os._exit(0)
    seen = {server.accept()[0].recv(1) for _ in range(3)}
    return len(seen)


#= ready
def epoll_and_eventfd():
    import select
    fd = os.eventfd(0) if hasattr(os, "eventfd") else call((290, 19), 0, 0)
    poll = select.epoll()
    poll.register(fd, select.EPOLLIN)
    os.write(fd, struct.pack("Q", 1))
    return "ready" if poll.poll(5) == [(fd, select.EPOLLIN)] else "not ready"


#= 1
def timer_descriptors():
    fd = call((283, 85), 1, 0)
    call((286, 86), fd, 0, struct.pack("qqqq", 0, 0, 0, 1_000_000), None)
    return struct.unpack("Q", os.read(fd, 8))[0]


#= 10
def signal_descriptors():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    fd = call((289, 74), -1, struct.pack("Q", 1 << (signal.SIGUSR1 - 1)), 8, 0)
    os.kill(os.getpid(), signal.SIGUSR1)
    return struct.unpack("I", os.read(fd, 128)[:4])[0]


#= created
def watches_of_directories():
    import select
    libc.inotify_init.restype = ctypes.c_int
    fd = libc.inotify_init()
    if fd < 0:
        raise OSError(ctypes.get_errno(), "inotify_init")
    os.mkdir("/tmp/watched")
    if libc.inotify_add_watch(fd, b"/tmp/watched", 0x100) < 0:
        raise OSError(ctypes.get_errno(), "inotify_add_watch")
    open("/tmp/watched/file", "w").close()
    ready, _, _ = select.select([fd], [], [], 10)
    return "created" if ready and b"file" in os.read(fd, 4096) else "nothing"


#= 3
def timers():
    ticks = []
    signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    while len(ticks) < 3:
        signal.pause()
    signal.setitimer(signal.ITIMER_REAL, 0)
    return 3


#= 14
def posix_timers():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    timer = ctypes.c_int()
    call((222, 107), 1, None, ctypes.byref(timer))
    call((223, 110), timer.value, 0, struct.pack("qqqq", 0, 0, 0, 1_000_000), None)
    return int(signal.sigwait({signal.SIGALRM}))


#= handled
def signal_handlers():
    got = []
    signal.signal(signal.SIGTERM, lambda *_: got.append("handled"))
    os.kill(os.getpid(), signal.SIGTERM)
    return got[0]


#= exit 3, signal 15
def ends_of_children():
    import subprocess
    a = subprocess.run(["sh", "-c", "exit 3"]).returncode
    b = subprocess.run(["sh", "-c", "kill -TERM $$"]).returncode
    return "exit %d, signal %d" % (a, -b)


#= 0 zombies
def orphans_are_reaped():
    import time
    for _ in range(20):
        child = os.fork()
        if child == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)
        os.waitpid(child, 0)
    zombies = -1
    for _ in range(200):
        zombies = 0
        for n in os.listdir("/proc"):
            if n.isdigit():
                try:
                    stat = open("/proc/%s/stat" % n).read().rsplit(")", 1)[1].split()
                    zombies += stat[0] == "Z" and stat[1] == "1"
                except OSError:
                    pass
        if zombies == 0:
            break
        time.sleep(0.05)
    return "%d zombies" % zombies


#= 1000000
def pipes_of_a_process():
    import subprocess
    return len(subprocess.run(["cat"], input=bytes(1_000_000), capture_output=True).stdout)


#= a b
def shell_of_the_image():
    import subprocess
    return subprocess.check_output("echo b a | tr ' ' '\\n' | sort | xargs", shell=True, text=True).strip()


# A process group ends as a whole, which is how a launcher ends its workers.
#= -9
def process_groups():
    import subprocess
    p = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"], start_new_session=True)
    os.killpg(p.pid, signal.SIGKILL)
    return p.wait(10)


#= 100000
def large_environment():
    import subprocess
    return subprocess.check_output([sys.executable, "-c", "import os; print(len(os.environ['PROBE']))"], env={**os.environ, "PROBE": "x" * 100_000}, text=True).strip()


#= 1000000
def large_arguments():
    import subprocess
    return subprocess.check_output([sys.executable, "-c", "import sys; print(sum(map(len, sys.argv[1:])))"] + ["x" * 100_000] * 10, text=True).strip()


#= 3 files
def temporary_files():
    import tempfile
    with tempfile.TemporaryDirectory() as where, tempfile.NamedTemporaryFile() as named, tempfile.TemporaryFile() as unnamed:
        named.write(b"x")
        unnamed.write(b"x")
        open(where + "/x", "w").close()
        return "3 files" if os.path.exists(named.name) and os.path.exists(where + "/x") else "missing"


#= ran
def programs_in_tmp():
    import subprocess
    with open("/tmp/probe.sh", "w") as f:
        f.write("#!/bin/sh\necho ran\n")
    os.chmod("/tmp/probe.sh", 0o755)
    return subprocess.check_output(["/tmp/probe.sh"], text=True).strip()


# A compiler of kernels maps what it has compiled from its cache.
#= mapped
def code_mapped_from_tmp():
    import mmap
    with open("/tmp/code", "wb+") as f:
        f.write(bytes(4096))
        f.flush()
        mmap.mmap(f.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()
    return "mapped"


#= 42
def code_made_in_memory():
    import mmap
    code = b"\xb8\x2a\x00\x00\x00\xc3" if x86 else bytes.fromhex("40058052c0035fd6")
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()


#= 6
def callbacks_from_c():
    import itertools
    numbers = (ctypes.c_int * 3)(3, 1, 2)
    calls = itertools.count()
    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    def order(a, b):
        next(calls)
        return a[0] - b[0]
    libc.qsort(numbers, 3, 4, order)
    return sum(numbers) if list(numbers) == [1, 2, 3] else list(numbers)


#= child
def memory_shared_with_a_child():
    import mmap
    memory = mmap.mmap(-1, 4096)
    child = os.fork()
    if child == 0:
        memory[:5] = b"child"
        os._exit(0)
    os.waitpid(child, 0)
    return memory[:5].decode()


#= written
def files_mapped_into_memory():
    import mmap
    with open("/work/final/probe-map", "wb+") as f:
        f.truncate(8192)
        with mmap.mmap(f.fileno(), 8192) as memory:
            memory[4096:4103] = b"written"
    with open("/work/final/probe-map", "rb") as f:
        f.seek(4096)
        text = f.read(7).decode()
    os.unlink("/work/final/probe-map")
    return text


#= memfd
def files_without_a_name():
    import subprocess
    fd = os.memfd_create("probe", 0)
    os.write(fd, b"#!/bin/sh\necho memfd\n")
    os.set_inheritable(fd, True)
    return subprocess.check_output(["/proc/self/fd/%d" % fd], pass_fds=[fd], text=True).strip()


#= 64 MiB
def large_files_in_dev_shm():
    with open("/dev/shm/probe", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, 64 << 20)
    size = os.stat("/dev/shm/probe").st_size >> 20
    os.unlink("/dev/shm/probe")
    return "%d MiB" % size


#= kept
def shared_memory_of_system_v():
    libc.shmat.restype = ctypes.c_void_p
    n = libc.shmget(0, 4096, 0o1600)
    if n < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    address = libc.shmat(n, None, 0)
    ctypes.memmove(address, b"kept", 4)
    text = ctypes.string_at(address, 4).decode()
    libc.shmctl(n, 0, None)
    return text


#= made
def semaphores_of_system_v():
    n = libc.semget(0, 4, 0o1600)
    if n < 0:
        raise OSError(ctypes.get_errno(), "semget")
    libc.semctl(n, 0, 0)
    return "made"


#= message
#=runsc /ENOSYS: .*/
def message_queues():
    queue = libc.mq_open(b"/probe", os.O_CREAT | os.O_RDWR, 0o600, None)
    if queue < 0:
        raise OSError(ctypes.get_errno(), "mq_open")
    if libc.mq_send(queue, b"message", 7, 0) < 0:
        raise OSError(ctypes.get_errno(), "mq_send")
    room = ctypes.create_string_buffer(8192)
    size = libc.mq_receive(queue, room, 8192, None)
    libc.mq_unlink(b"/probe")
    return room.raw[:size].decode()


def bank(path, mode):
    import sqlite3
    base = sqlite3.connect(path, timeout=20)
    base.execute("pragma journal_mode=" + mode)
    base.execute("create table account (n integer)")
    base.execute("insert into account values (0)")
    base.commit()
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            own = sqlite3.connect(path, timeout=30, isolation_level=None)
            own.execute("pragma synchronous=off")  # locks are asked about, not the speed of a disk
            for _ in range(10):
                own.execute("begin immediate")
                own.execute("update account set n = n + 1")
                own.execute("commit")
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    total = base.execute("select n from account").fetchone()[0]
    base.close()
    return total


#= 30
def database_in_the_working_directory():
    return bank("/work/probe.db", "wal")


#= 30
def database_in_final():
    try:
        return bank("/work/final/probe.db", "delete")
    finally:
        for name in os.listdir("/work/final"):
            if name.startswith("probe.db"):
                os.unlink("/work/final/" + name)


#= EAGAIN EAGAIN
def locks_of_files():
    import fcntl
    answers = []
    for lock in (lambda f: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB), lambda f: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)):
        r, w = os.pipe()
        held = open("/work/final/probe-lock", "w")
        lock(held)
        child = os.fork()
        if child == 0:
            with open("/work/final/probe-lock", "r+") as other:
                os.write(w, str(refused(lock, other)).encode())
            os._exit(0)
        os.waitpid(child, 0)
        answers.append(os.read(r, 100).decode())
        held.close()
    os.unlink("/work/final/probe-lock")
    return " ".join(answers)


#= same
def copies_in_the_kernel():
    import shutil
    data = os.urandom(1 << 20)
    with open("/work/final/probe-a", "wb") as f:
        f.write(data)
    shutil.copyfile("/work/final/probe-a", "/tmp/probe-b")
    with open("/work/final/probe-a", "rb") as a, open("/tmp/probe-c", "wb") as c:
        refused(os.copy_file_range, a.fileno(), c.fileno(), 1 << 20)
        os.sendfile(c.fileno(), a.fileno(), 0, 1 << 20)
    same = open("/tmp/probe-b", "rb").read() == data
    os.unlink("/work/final/probe-a")
    return "same" if same else "different"


#= 0600 0755 link 2
def modes_and_links_in_final():
    base = "/work/final/probe-modes"
    os.mkdir(base)
    open(base + "/file", "w").close()
    os.chmod(base + "/file", 0o600)
    os.chmod(base, 0o755)
    os.symlink("file", base + "/link")
    os.link(base + "/file", base + "/second")
    os.rename(base + "/second", base + "/third")
    answer = "%04o %04o %s %d" % (os.stat(base + "/file").st_mode & 0o7777, os.stat(base).st_mode & 0o7777, "link" if os.path.islink(base + "/link") else "none",
                                  os.stat(base + "/third").st_nlink)
    __import__("shutil").rmtree(base)
    return answer


#= 3 names
def names_in_every_script():
    base = "/work/final/probe-names"
    os.mkdir(base)
    names = ["\u6570\u636e.csv", "r\u00e9sum\u00e9 \u03b1\u03b2.txt", "x" * 251 + ".txt"]
    for name in names:
        with open(os.path.join(base, name), "w") as f:
            f.write(name)
    same = sorted(os.listdir(base)) == sorted(names)
    __import__("shutil").rmtree(base)
    return "%d names" % len(names) if same else "different"


#= 2000
def many_files():
    os.mkdir("/work/many")
    for n in range(2000):
        open("/work/many/%d" % n, "w").close()
    count = len(os.listdir("/work/many"))
    __import__("shutil").rmtree("/work/many")
    return count


#= 1000000000 0
#=runsc 1000000000 1953125
def holes_in_files():
    with open("/work/final/probe-hole", "wb") as f:
        f.truncate(1_000_000_000)
    s = os.stat("/work/final/probe-hole")
    os.unlink("/work/final/probe-hole")
    return "%d %d" % (s.st_size, s.st_blocks)


#= 86400.0
def times_of_files():
    open("/work/final/probe-time", "w").close()
    os.utime("/work/final/probe-time", (86400, 86400))
    t = os.stat("/work/final/probe-time").st_mtime
    os.unlink("/work/final/probe-time")
    return t


# PyTorch names its cache after the user, and fails for a user without a name.
#= sandbox
def name_of_the_user():
    import getpass
    return getpass.getuser()


#= written
def home_and_caches():
    home = os.path.expanduser("~")
    for path in (home + "/.config/probe", os.environ["XDG_CACHE_HOME"], os.environ["MPLCONFIGDIR"], os.environ["HF_HOME"], os.environ["TORCH_HOME"],
                 os.environ["NUMBA_CACHE_DIR"], os.environ["TRITON_CACHE_DIR"], os.environ["TORCHINDUCTOR_CACHE_DIR"]):
        os.makedirs(path, exist_ok=True)
        with open(path + "/probe", "w") as f:
            f.write("x")
    return "written"


#= 1 0
def zones_of_time():
    import time
    os.environ["TZ"] = "CET-1CEST,M3.5.0,M10.5.0/3"
    time.tzset()
    winter = time.localtime(0).tm_hour
    os.environ["TZ"] = "UTC"
    time.tzset()
    return "%d %d" % (winter, time.localtime(0).tm_hour)


#= utf-8 utf-8
def texts_are_unicode():
    import locale
    locale.setlocale(locale.LC_ALL, "C.UTF-8")
    return "%s %s" % (sys.stdout.encoding.lower(), locale.getpreferredencoding().lower())


#= same
def clocks_agree():
    import time
    def difference():
        while True:  # until nothing came between the two clocks
            before, wall, after = time.monotonic(), time.time(), time.monotonic()
            if after - before < 0.01:
                return wall - before
    begin = difference()
    time.sleep(0.05)
    return "same" if abs(difference() - begin) < 0.05 else "different"


#= 12345
def terminals():
    import pty
    master, slave = pty.openpty()
    os.write(slave, b"12345")
    return os.read(master, 100).decode()


#= typed
def program_in_a_terminal():
    import pty
    child, fd = pty.fork()
    if child == 0:
        os.execvp("sh", ["sh", "-c", "stty -echo; read line; echo $line"])
    os.write(fd, b"typed\n")
    text = b""
    try:
        while b"typed\r\n" not in text.replace(b"typed\r\ntyped", b"typed"):
            text += os.read(fd, 1000)
    except OSError:
        pass
    os.waitpid(child, 0)
    return text.decode().split()[-1]


#= 60 characters
def random_numbers():
    import secrets
    import uuid
    return "%d characters" % len(os.urandom(16).hex() + secrets.token_hex(8) + str(uuid.uuid4())[:12])


#= 4 hashes
def hashes_and_certificates():
    import hashlib
    import ssl
    ssl.create_default_context()
    return "%d hashes" % sum(len(hashlib.new(n, b"x").digest()) > 10 for n in ("md5", "sha1", "sha256", "blake2b"))


#= 3 formats
def compressions():
    import bz2
    import lzma
    import zlib
    data = b"text" * 1000
    return "%d formats" % sum(m.decompress(m.compress(data)) == data for m in (bz2, lzma, zlib))


#= 900
def deep_recursion():
    import threading
    threading.stack_size(256 << 20)
    out = []
    def down(n):
        return n if n == 900 else down(n + 1)
    t = threading.Thread(target=lambda: out.append(down(0)))
    t.start()
    t.join()
    return out[0]


#= lowered
def lower_limits():
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    return "lowered" if resource.getrlimit(resource.RLIMIT_NOFILE) == (64, 64) else "unchanged"


#= 5
def lower_priority():
    return os.nice(5)


#= 1
def processors_can_be_chosen():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return len(os.sched_getaffinity(0))


#= 1
def debugger_of_a_child():
    child = os.fork()
    if child == 0:
        call((101, 117), 0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(1)
    os.waitpid(child, 0)
    call((101, 117), 7, child, 0, 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


#= probe
def names_of_threads():
    libc.prctl(15, b"probe", 0, 0, 0)
    return open("/proc/self/comm").read().strip()


#= 8 MiB
#=runsc /ENOMEM: .*/
def locked_memory():
    import mmap
    memory = mmap.mmap(-1, 8 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for size in (8, 4, 1):
        if libc.mlock(ctypes.c_void_p(address), size << 20) == 0:
            return "%d MiB" % size
    raise OSError(ctypes.get_errno(), "mlock")


#= advised
def advice_on_memory():
    import mmap
    memory = mmap.mmap(-1, 4 << 20)
    memory.madvise(mmap.MADV_HUGEPAGE)
    memory.madvise(mmap.MADV_DONTNEED)
    return "advised"


#= module
def modules_of_its_own():
    import subprocess
    with open("/work/helper_of_probe.py", "w") as f:
        f.write("VALUE = 'module'\n")
    return subprocess.check_output([sys.executable, "-c", "import helper_of_probe as h; print(h.VALUE)"], cwd="/work", text=True).strip()


#= python
def virtual_environments():
    import subprocess
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "/tmp/venv"], check=True)
    return subprocess.check_output(["/tmp/venv/bin/python", "-c", "print('python')"], text=True).strip()


#= 2 entries
def archives():
    import shutil
    os.makedirs("/tmp/archived/sub")
    open("/tmp/archived/sub/file", "w").close()
    made = [shutil.make_archive("/tmp/probe-archive", kind, "/tmp/archived") for kind in ("zip", "gztar")]
    return "%d entries" % sum(os.path.getsize(m) > 0 for m in made)


#= empty
def standard_input():
    return "empty" if sys.stdin.read() == "" else "text"


#= stack
def report_of_a_crash():
    import subprocess
    p = subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"], capture_output=True, text=True)
    return "stack" if "Fatal Python error: Segmentation fault" in p.stderr and p.returncode == -11 else p


#= reached
def lines_of_a_log():
    import logging.handlers
    log = logging.Logger("probe")
    log.addHandler(logging.handlers.RotatingFileHandler("/work/probe.log", maxBytes=200, backupCount=2))
    for n in range(100):
        log.warning("line %d", n)
    return "reached" if os.path.exists("/work/probe.log.2") else "missing"


#= refused
def process_that_forgets_its_children():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if os.fork() == 0:
        os._exit(0)
    try:
        os.wait()
    except ChildProcessError:
        return "refused"


#= daemon
def process_in_the_background():
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.write(w, b"daemon" if os.getppid() != 0 else b"lost")
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(r, 100).decode()


#= bound
def low_ports():
    import socket
    with socket.socket() as s:
        answer = refused(s.bind, ("127.0.0.1", 8080))
    return "bound" if answer is None else answer
