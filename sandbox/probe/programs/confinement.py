# What a program may not do, see or reach.


# The program is an ordinary user in every respect.
#= ordinary
#=rootless {0}
def user():
    ids = set(os.getresuid() + os.getresgid() + tuple(os.getgroups()))
    return "ordinary" if 0 not in ids and len(set(os.getresuid())) == 1 else ids


# No set holds a capability.
#= none
def capabilities():
    sets = [line for line in open("/proc/self/status") if line.startswith("Cap")]
    return "none" if len(sets) >= 4 and all(int(s.split()[1], 16) == 0 for s in sets) else sets


#= 1
def no_new_privileges():
    return libc.prctl(39, 0, 0, 0, 0)


#= 2
def system_call_filter():
    return next(line.split()[1] for line in open("/proc/self/status") if line.startswith("Seccomp:"))


#= EPERM
#=rootless setuid=None setgid=None setresuid=None setgroups=EPERM
def become_root():
    return all_refused({"setuid": (os.setuid, 0), "setgid": (os.setgid, 0), "setresuid": (os.setresuid, 0, 0, 0),
                        "setgroups": (os.setgroups, [0])})


# A set-user-ID program of the image gives nobody more rights.
#= 0 gained
def set_user_id_programs():
    import subprocess
    gained = 0
    for name in ("su", "passwd", "mount", "chsh", "newgrp", "umount", "gpasswd", "chfn"):
        path = "/usr/bin/" + name
        if not os.path.exists(path) or not os.stat(path).st_mode & 0o6000:
            continue
        p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            gained += open("/proc/%d/status" % p.pid).read().split("Uid:")[1].split()[1] == "0"
        except (OSError, IndexError):
            pass
        p.stdin.close()
        p.wait(10)
    return "%d gained" % gained


#= EPERM
#=runsc EACCES
def key_rings():
    return all_refused({"add_key": (call, (248, 217), b"user", b"probe", b"x", 1, -3), "keyctl": (call, (250, 219), 0, -3, 1),
                        "request_key": (call, (249, 218), b"user", b"probe", None, -3)})


#= EPERM
#=runsc setup=3 enter=EPERM register=ENOSYS
def io_uring():
    params = ctypes.create_string_buffer(120)
    return all_refused({"setup": (call, 425, 4, params), "enter": (call, 426, -1, 0, 0, 0, None, 0), "register": (call, 427, -1, 0, None, 0)})


# Sockets that lead out of the container by another way than the network.
#= vsock=EPERM alg=EPERM packet=EPERM bluetooth=EAFNOSUPPORT xdp=EPERM
#=runsc vsock=EAFNOSUPPORT alg=EAFNOSUPPORT packet=EPERM bluetooth=EAFNOSUPPORT xdp=EAFNOSUPPORT
def socket_families():
    import socket
    return " ".join("%s=%s" % (name, refused(lambda: socket.socket(family, kind).close()))
                    for name, family, kind in (("vsock", 40, 1), ("alg", 38, 5), ("packet", 17, 3), ("bluetooth", 31, 3), ("xdp", 44, 3)))


#= EPERM
def raw_sockets():
    import socket
    return all_refused({str(n): (socket.socket, family, socket.SOCK_RAW, n)
                        for family, n in ((socket.AF_INET, 1), (socket.AF_INET, 6), (socket.AF_INET, 255), (socket.AF_INET6, 58))})


NAMESPACES = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "uts": 0x4000000, "ipc": 0x8000000, "cgroup": 0x2000000}


#= EPERM
#=runsc mount=0 pid=EPERM net=EPERM uts=EPERM ipc=EPERM cgroup=0
def new_namespaces():
    return all_refused({name: (call, (272, 97), flag) for name, flag in NAMESPACES.items() if name != "user"})


#= EPERM
#=runsc 0
def new_user_namespace():
    return refused(call, (272, 97), NAMESPACES["user"])


# clone3 hides its flags from a filter, so the filter answers that there is no such call.
#= ENOSYS
def clone3_with_namespaces():
    args = struct.pack("8Q", NAMESPACES["user"] | NAMESPACES["mount"], 0, 0, 0, 17, 0, 0, 0)
    return refused(call, 435, args, 64)


#= EACCES
#=runsc mnt=ENOENT net=3 pid=5 ipc=ENOENT uts=ENOENT cgroup=ENOENT
def enter_namespaces_of_init():
    return all_refused({name: (os.open, "/proc/1/ns/" + name, os.O_RDONLY) for name in ("mnt", "net", "pid", "ipc", "uts", "cgroup")})


#= EPERM
def mounts():
    return all_refused({"tmpfs": (call, (165, 40), b"none", b"/tmp", b"tmpfs", 0, None), "bind": (call, (165, 40), b"/work", b"/tmp", b"", 4096, None),
                        "remount": (call, (165, 40), b"none", b"/work/input", b"", 32 | 4096, None), "umount": (call, (166, 39), b"/work/final", 2),
                        "pivot": (call, (155, 41), b"/tmp", b"/tmp"), "chroot": (os.chroot, "/tmp")})


#= EPERM
#=runsc ENOSYS
def mounts_by_the_new_calls():
    return all_refused({"fsopen": (call, 430, b"tmpfs", 0), "open_tree": (call, 428, -100, b"/work", 1), "move_mount": (call, 429, -1, b"", -1, b"", 4),
                        "fsmount": (call, 432, -1, 0, 0), "fspick": (call, 433, -100, b"/", 0), "mount_setattr": (call, 442, -100, b"/", 0, None, 0)})


#= EPERM
#=runsc /.*final 7:0=EPERM .*final 1:1=EPERM .*final 10:200=EPERM.*/
def device_files():
    import stat
    return all_refused({"%s %d:%d" % (where, a, b): (os.mknod, "%s/probe-%d-%d" % (where, a, b), kind | 0o666, os.makedev(a, b))
                        for where in ("/tmp", "/work", "/work/final", "/dev/shm") for kind, a, b in ((stat.S_IFBLK, 7, 0), (stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 10, 200))})


#= EPERM
#=runsc bpf=EPERM perf=ENODEV
def bpf_and_perf():
    return all_refused({"bpf": (call, (321, 280), 0, bytes(72), 72), "perf": (call, (298, 241), bytes(128), 0, -1, -1, 0)})


#= EPERM
#=runsc ENOSYS
def user_faults():
    return refused(call, (323, 282), 0)


#= EPERM
def rights_of_the_administrator():
    return all_refused({
        "init_module": (call, (175, 105), None, 0, b""), "delete_module": (call, (176, 106), b"loop", 0), "finit_module": (call, (313, 273), -1, b"", 0),
        "kexec": (call, (246, 104), 0, 0, None, 0), "reboot": (call, (169, 142), 0xfee1dead, 672274793, 0x01234567, None),
        "swapon": (call, (167, 224), b"/tmp/x", 0), "swapoff": (call, (168, 225), b"/tmp/x"), "acct": (call, (163, 89), b"/tmp/x"),
        "quotactl": (call, (179, 60), 0x80000700, b"/dev/sda", 0, None)})


#= EPERM
def clocks():
    import time
    return all_refused({"settimeofday": (call, (164, 170), struct.pack("qq", 0, 0), None), "clock_settime": (time.clock_settime, 0, 1.0),
                        "adjtimex": (call, (159, 171), struct.pack("I4x", 1) + bytes(200))})


#= EPERM
def names_of_the_machine():
    return all_refused({"host": (os.sethostname if hasattr(os, "sethostname") else __import__("socket").sethostname, "elsewhere"),
                        "domain": (call, (171, 162), b"elsewhere", 9)})


#= EPERM
#=runsc syslog=64 console=ENOSYS
def kernel_messages():
    return all_refused({"syslog": (call, (103, 116), 3, ctypes.create_string_buffer(64), 64), "console": (call, (103, 116), 6, None, 0)})


# A handle of a file leads around every mount.
#= EPERM
#=runsc ENOTSUP
def files_by_handle():
    handle = struct.pack("Ii", 8, 1) + bytes(8)
    fd = os.open("/work/final", os.O_RDONLY)
    return refused(call, (304, 265), fd, handle, os.O_RDONLY)


#= EPERM
#=runsc ENOSYS
def watch_of_a_whole_mount():
    return refused(call, (300, 262), 0, 0)


#= EPERM
def ports_of_the_processor():
    if not x86:
        return "EPERM"
    return all_refused({"iopl": (call, 172, 3), "ioperm": (call, 173, 0x70, 2, 1)})


#= refused
def writes_to_the_image():
    def write(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
    return refused_with({"EROFS", "EACCES"}, {path: (write, path) for path in ("/probe", "/usr/probe", "/usr/bin/probe", "/opt/probe", "/root/probe", "/var/tmp/probe",
                                                          "/var/log/probe", "/run/probe", "/home/probe", "/mnt/probe") if os.path.isdir(os.path.dirname(path)) and os.access(os.path.dirname(path), os.X_OK)})


#= refused
def writes_to_the_input():
    return refused_with({"EROFS", "EACCES", "EPERM"}, {"create": (os.open, "/work/input/probe", os.O_WRONLY | os.O_CREAT), "mkdir": (os.mkdir, "/work/input/probe"),
                        "chmod": (os.chmod, "/work/input", 0o777), "utime": (os.utime, "/work/input"), "link": (os.symlink, "x", "/work/input/probe"),
                        "append": (os.open, "/work/input/data.txt", os.O_WRONLY | os.O_APPEND), "truncate": (os.truncate, "/work/input/data.txt", 0),
                        "unlink": (os.unlink, "/work/input/data.txt"), "rename": (os.rename, "/work/input/data.txt", "/work/input/other")})


#= data of the input
def reads_of_the_input():
    return open("/work/input/data.txt").read()


#= refused
def writes_to_the_program():
    path = PROGRAM
    return refused_with({"EROFS", "EACCES", "EPERM", "EBUSY", "EISDIR"}, {
        "write": (os.open, path, os.O_WRONLY), "append": (os.open, path, os.O_RDWR | os.O_APPEND), "truncate": (os.truncate, path, 0),
        "chmod": (os.chmod, path, 0o777), "unlink": (os.unlink, path), "rename": (os.rename, path, path + ".old")})


# In a pod the directory above belongs to the kubelet.
#= EBUSY
#=pod EPERM
def final_replaced():
    return all_refused({"rename": (os.rename, "/work/final", "/work/elsewhere"), "rmdir": (os.rmdir, "/work/final"),
                        "input": (os.rename, "/work/input", "/work/elsewhere")})


# A link to a file of another mount cannot be made, so none of the input reaches the outputs by its inode.
#= EXDEV
def hard_links_across_mounts():
    return all_refused({"input": (os.link, "/work/input/data.txt", "/work/final/probe-link"), "image": (os.link, "/etc/passwd", "/work/final/probe-link")})


#= sealed
#=runsc {'1/environ': 'readable', '1/maps': 'readable', '1/auxv': 'readable'}
def sensitive_files_of_proc():
    seen = {}
    for path in ("kcore", "kmsg", "sysrq-trigger", "kpagecount", "kpageflags", "kpagecgroup", "1/mem", "1/environ", "1/maps", "1/stack", "1/syscall", "1/auxv",
                 "1/io", "1/pagemap"):
        try:
            with open("/proc/" + path, "rb") as f:
                if f.read(1):
                    seen[path] = "readable"
        except OSError:
            pass
    for path in ("keys", "timer_list", "sched_debug", "latency_stats"):
        try:
            if open("/proc/" + path, "rb").read(1):
                seen[path] = "not empty"
        except OSError:
            pass
    return seen or "sealed"


#= sealed
def settings_of_the_kernel():
    open_ones = []
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches", "/proc/sys/vm/panic_on_oom", "/proc/sys/fs/suid_dumpable",
                 "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/hostname", "/proc/sys/kernel/shmmax", "/proc/sys/fs/binfmt_misc/register", "/proc/irq/default_smp_affinity",
                 "/proc/sysrq-trigger", "/proc/sys/kernel/ns_last_pid", "/sys/kernel/uevent_helper", "/sys/kernel/mm/ksm/run", "/sys/power/state", "/sys/fs/cgroup/memory/cgroup.procs",
                 "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/pids/pids.max"):
        try:
            os.close(os.open(path, os.O_WRONLY))
            open_ones.append(path)
        except OSError:
            pass
    return open_ones or "sealed"


#= none
def control_groups_of_its_own():
    made = []
    for base in ["/sys/fs/cgroup"] + ["/sys/fs/cgroup/" + name for name in (os.listdir("/sys/fs/cgroup") if os.path.isdir("/sys/fs/cgroup") else [])]:
        try:
            os.mkdir(base + "/probe")
            made.append(base)
        except OSError:
            pass
    return made or "none"


#= sealed
def firmware_and_debugging():
    seen = []
    for path in ("/sys/firmware", "/sys/kernel/debug", "/sys/kernel/tracing", "/proc/acpi", "/proc/scsi", "/sys/fs/bpf"):
        try:
            if os.listdir(path):
                seen.append(path)
        except OSError:
            pass
    return seen or "sealed"


# Addresses of the kernel are hidden.
#= hidden
def addresses_of_the_kernel():
    try:
        with open("/proc/kallsyms") as f:
            return "hidden" if all(int(line.split()[0], 16) == 0 for line, _ in zip(f, range(200))) else "shown"
    except OSError:
        return "hidden"


# The kubelet mounts a file for last words.
#= fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero
#=runsc fd full fuse net null ptmx pts random shm stderr stdin stdout tty urandom zero
#=pod fd full mqueue null ptmx pts random shm stderr stdin stdout termination-log tty urandom zero
def devices():
    return " ".join(sorted(n for n in os.listdir("/dev") if n != "core" and n != "console"))


#= ENXIO
#=runsc EIO
def terminal():
    return refused(os.open, "/dev/tty", os.O_RDWR)


# Nothing can be typed into the terminal of the person who watches.
#= ENOTTY
def input_for_a_terminal():
    import fcntl
    return all_refused({str(fd): (fcntl.ioctl, fd, 0x5412, b"x") for fd in (0, 1, 2)})


# A pod has init under the name that it has in the image of the programs.
#= 1 evalbox-init
#=runsc 1 evalbox-init
#=pod 1 init
def processes():
    alive = sorted(int(n) for n in os.listdir("/proc") if n.isdigit())
    others = [n for n in alive if n not in (1, os.getpid(), os.getppid())]
    return "1 " + open("/proc/1/comm").read().strip() if not others else others


#= none
def sockets_of_the_host():
    found = [p for p in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/systemd/private", "/run/dbus/system_bus_socket", "/run/snapd.socket",
                         "/run/crio/crio.sock", "/run/podman/podman.sock", "/var/run/libvirt/libvirt-sock") if os.path.exists(p)]
    return found or "none"


# Abstract sockets belong to the network namespace: those of the host are not there.
# The containers of a pod share the network namespace, which lists the names of its sockets. The path of this one is not in the container.
#= none
#=pod /.*evalbox-spool/porter.sock.*/
def abstract_sockets():
    try:
        names = [line.split()[7] for line in open("/proc/net/unix").read().splitlines()[1:] if len(line.split()) > 7]
    except FileNotFoundError:
        names = []
    return names or "none"


#= ['lo']
def interfaces():
    import socket
    return [name for _, name in socket.if_nameindex()]


def connected(family, address, kind):
    import socket
    with socket.socket(family, kind) as s:
        s.settimeout(3)
        s.connect(address)
        s.send(b"x")
    return "reached"


#= ENETUNREACH
#=runsc EHOSTUNREACH
def the_network():
    import socket
    calls = {}
    for address in ("192.0.2.1", "10.0.0.1", "172.17.0.1", "169.254.169.254", "8.8.8.8"):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            calls["%s %d" % (address, kind)] = (connected, socket.AF_INET, (address, 80), kind)
    return all_refused(calls)


#= ENETUNREACH
#=runsc EHOSTUNREACH
def the_network_by_version_6():
    import socket
    return all_refused({address: (connected, socket.AF_INET6, (address, 80), socket.SOCK_STREAM)
                        for address in ("2001:db8::1", "64:ff9b::a9fe:a9fe", "fd00::1", "::ffff:192.0.2.1")})


#= ENETUNREACH
#=runsc ENETUNREACH
def broadcast_and_multicast():
    import socket
    def send(address):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            return s.sendto(b"x", (address, 9))
    return all_refused({address: (send, address) for address in ("255.255.255.255", "224.0.0.1", "239.255.255.250")})


#= EAI_AGAIN
def names_of_the_network():
    import socket
    try:
        return socket.getaddrinfo("example.com", 80)
    except socket.gaierror as e:
        return {-3: "EAI_AGAIN", -2: "EAI_NONAME"}.get(e.errno, e)


#= 0 1 2
def descriptors():
    # One is of this list, one the pipe of the answer.
    mine = sorted(int(n) for n in os.listdir("/proc/self/fd"))
    names = {n: refused(os.readlink, "/proc/self/fd/%d" % n) for n in mine}
    return " ".join(str(n) for n in mine if n < 3 or not names[n].startswith(("pipe:", "/proc/", "EN", "/dev/null")))


# The state that a program inherits is the plain one.
#= SigBlk 0 SigIgn 0 umask 022 nice 0 cwd /work
def inherited_state():
    import subprocess
    # A shell changes less of its state at the start than Python does.
    text = subprocess.run(["sh", "-c", "cat /proc/self/status; umask; nice; pwd"], capture_output=True, text=True, restore_signals=True).stdout.split()
    after = lambda word: int(text[text.index(word) + 1], 16) if word in text else 0
    return "SigBlk %d SigIgn %d umask %s nice %s cwd %s" % (after("SigBlk:"), after("SigIgn:"), text[-3].lstrip("0").zfill(3), text[-2], text[-1])


#= EPERM
def higher_limits():
    import resource
    def raise_(what):
        hard = resource.getrlimit(what)[1]
        if hard == resource.RLIM_INFINITY:
            raise OSError(errno.EPERM, "there is nothing above")
        resource.setrlimit(what, (hard, hard + 1))
    def wrapped(what):
        try:
            raise_(what)
        except ValueError:
            raise OSError(errno.EPERM, "refused")
    return all_refused({"nofile": (wrapped, resource.RLIMIT_NOFILE), "core": (wrapped, resource.RLIMIT_CORE), "nproc": (wrapped, resource.RLIMIT_NPROC)})


#= (0, 0)
def core_files():
    import resource
    return resource.getrlimit(resource.RLIMIT_CORE)


# What gVisor lets a program set has no effect outside.
#= EACCES EACCES
#=runsc None 5
def priority_over_others():
    return "%s %s" % (refused(os.setpriority, os.PRIO_PROCESS, 0, -5), refused(lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000")))


#= refused
def classes_of_priority():
    return refused_with({"EPERM", "EACCES", "ENOSYS", "EINVAL", "ENOENT"}, {
        "fifo": (os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)),
        "ionice": (call, (251, 30), 1, 0, 1 << 13)})


#= empty
def shared_memory_of_others():
    left = []
    for kind in ("shm", "sem", "msg"):
        try:
            left += open("/proc/sysvipc/" + kind).read().splitlines()[1:]
        except OSError:
            pass
    for path in ("/dev/shm", "/dev/mqueue"):
        try:
            left += [name for name in os.listdir(path) if not name.startswith("probe-")]
        except OSError:
            pass
    return left or "empty"


# The name server is one of the addresses for documentation, which nobody has.
# A pod has the name server of its cluster.
#= sandbox 192.0.2.53
#=runsc /sandbox .*/
#=pod /sandbox .*/
def name_of_the_container():
    import socket
    return " ".join([socket.gethostname()] + [line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver")])


# The file of init and the mounts show no secret of the controller.
#= none
def environment_of_the_controller():
    return [name for name, value in os.environ.items() if name != "SANDBOX_DEADLINE" and ("canary" in value.lower() or name.startswith(("SANDBOX_", "EVALBOX_", "DOCKER_", "AWS_", "SSH_", "GITHUB_")))] or "none"


#= EACCES
#=runsc EACCES
def root_of_init():
    return all_refused({"root": (os.listdir, "/proc/1/root"), "cwd": (os.listdir, "/proc/1/cwd")})


#= EPERM
def trace_of_init():
    return all_refused({"attach": (call, (101, 117), 16, 1, 0, 0), "seize": (call, (101, 117), 0x4206, 1, 0, 0)})


# Only what the program made itself is writable.
#= /dev/mqueue /dev/shm /tmp /work /work/final
#=runsc /dev/shm /tmp /work /work/final
#=rootless /dev /dev/mqueue /dev/pts /dev/shm /tmp /work /work/final
def writable_directories():
    found = set()
    for base, dirs, _ in os.walk("/", followlinks=False):
        if base in ("/proc", "/sys"):
            dirs[:] = []
            continue
        if os.access(base, os.W_OK) and not os.statvfs(base).f_flag & os.ST_RDONLY:
            found.add(base)
    return " ".join(sorted(p for p in found if "/probe" not in p and not p.startswith(("/tmp/", "/work/final/", "/work/__"))))


# The kubelet has no such options for a volume. No new privileges, no capabilities and the devices of the cgroup stand in for them.
#= nosuid nodev
#=runsc ['/tmp', '/work', '/dev/shm']
#=pod ['/tmp', '/work', '/dev/shm']
def options_of_the_mounts():
    wrong = []
    for line in open("/proc/self/mounts"):
        _, path, kind, options = line.split()[:4]
        words = options.split(",")
        if path in ("/tmp", "/work", "/dev/shm") and not {"nosuid", "nodev"} <= set(words):
            wrong.append(path)
    return wrong or "nosuid nodev"


# Memory at fixed addresses helps an exploit.
#= EPERM
#=runsc EINVAL
def personality_without_randomness():
    return refused(call, (135, 92), 0x0040000)
