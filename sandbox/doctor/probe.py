"""Tries the walls of its container and prints what it found as JSON."""
import json
import os
import socket

status = dict(
    line.split(":", 1) for line in open("/proc/self/status") if ":" in line
)


def read_only(path):
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def reachable():
    """A UDP socket can only be connected when there is a route."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.connect(("192.0.2.1", 9))
        return True
    except OSError:
        return False


def forks(most):
    """The number of processes that can be there at once."""
    read, write = os.pipe()
    children = []
    try:
        while len(children) < most:
            child = os.fork()
            if child == 0:
                os.close(write)
                os.read(read, 1)
                os._exit(0)
            children.append(child)
    except OSError:
        pass
    os.close(write)
    for child in children:
        os.waitpid(child, 0)
    return len(children)


print(json.dumps({
    "uid": os.getuid(),
    "capabilities": status["CapEff"].strip(),
    "no_new_privileges": status["NoNewPrivs"].strip(),
    "seccomp": status["Seccomp"].strip(),
    "root_read_only": read_only("/"),
    "input_read_only": read_only("input"),
    "final_writable": os.access("final", os.W_OK),
    "interfaces": [name for _, name in socket.if_nameindex() if name != "lo"],
    "reachable": reachable(),
    "forks": forks(100),
}))
