"""A tool that declares its artifacts, for tests: deterministic, and Python only.

Every flag of its configuration that is true makes it misbehave in one way.
"""

import argparse
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

TIMESTAMP = "2026-01-01T00:00:00Z"


def dump(value):
    return json.dumps(value, sort_keys=True)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def survivor():
    """Start a child of a child that shrugs SIGTERM off and holds our stdout."""
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('survivor ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child.stdout.readline()
    # What it prints from here on goes to nobody; what holds our stdout is this one.
    subprocess.Popen([sys.executable, "-c", code])


def trace(seed, config):
    records = [{"step": n, "event": event, "seed": seed} for n, event in enumerate(["start", "process", "end"], 1)]
    lines = [dump(r).encode() for r in records]
    if config.get("bad_trace"):
        lines[1] = b"{bad"
    if config.get("bad_step"):
        lines[2] = b'{"step": "three"}'
    if config.get("trace_not_utf8"):
        lines[1] = b'{"step": 2, "text": "\xff"}'
    return b"".join(line + b"\n" for line in lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--adapter")
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    config = {}
    if os.path.exists(args.config):
        with open(args.config, encoding="utf-8") as file:
            config = json.load(file)

    def at(name):
        return os.path.join(args.output, name)

    if config.get("fail"):
        print("fake tool: simulated failure", file=sys.stderr)
        return 1
    if config.get("signal"):
        os.kill(os.getpid(), signal.SIGKILL)
    if config.get("survivor"):
        survivor()
    if config.get("timeout"):
        print("partial", flush=True)
        print("warning", file=sys.stderr, flush=True)
        time.sleep(600)
    if config.get("flood"):
        block = b"x" * (1 << 20)
        for _ in range(300):
            sys.stdout.buffer.write(block)
        sys.stdout.flush()
    if config.get("not_utf8"):
        sys.stdout.buffer.write(b"a\xff\r\n")
        sys.stdout.flush()
    if config.get("stdin"):
        print("stdin", repr(sys.stdin.read()))
    if config.get("environment"):
        for name in sorted(os.environ):
            print(name + "=" + os.environ[name])
    if config.get("escape"):
        for name in [args.config, os.path.join(os.path.dirname(os.path.abspath(__file__)), "escaped")]:
            try:
                write(name, b"changed")
                print("changed", name)
            except OSError as e:
                print("refused", type(e).__name__)

    pack = trace(args.seed, config)
    listed = [{"path": "trace_pack.jsonl", "sha256": hashlib.sha256(pack).hexdigest()}]
    if config.get("plot"):
        write(at("plot.bin"), b"plot")
        listed.append({"path": "plot.bin", "sha256": hashlib.sha256(b"plot").hexdigest()})
    if config.get("wrong_hash"):
        listed[0]["sha256"] = "0" * 64
    if config.get("list_missing"):
        listed.append({"path": "never.bin"})
    if config.get("list_outside"):
        listed.append({"path": "../outside"})
    if config.get("rewrite_kept"):
        write(at("kept.txt"), b"kept")
    if config.get("many_files"):
        os.mkdir(at("many"))
        for n in range(100):
            write(at("many/%03d" % n), b"x")
    if config.get("list_kept"):
        listed.append({"path": "kept.txt"})
    manifest = dump({
        "artifacts": listed,
        "run_id": "fake-run-seed-%d" % args.seed,
        "seed": args.seed,
        "timestamp": TIMESTAMP,
    }).encode()

    if config.get("bad_json"):
        manifest = b"{bad"
    if config.get("manifest_not_utf8"):
        manifest = manifest.replace(b"fake-run", b"fake\xff")
    if config.get("missing_field"):
        manifest = b'{"run_id": "r", "artifacts": []}'
    if config.get("fifo_manifest"):
        os.mkfifo(at("manifest.json"))
    elif config.get("socket_manifest"):
        socket.socket(socket.AF_UNIX).bind(at("manifest.json"))
    elif config.get("link_manifest"):
        os.symlink("/etc/passwd", at("manifest.json"))
    elif config.get("directory_manifest"):
        os.mkdir(at("manifest.json"))
    elif not config.get("no_manifest"):
        write(at("manifest.json"), manifest)
    if not config.get("no_trace"):
        write(at("trace_pack.jsonl"), pack)
    if config.get("metadata"):
        write(at("adapter_metadata.json"), dump({"adapter": args.adapter}).encode())
    if config.get("bad_metadata"):
        write(at("adapter_metadata.json"), b"[]")

    print("fake tool: completed")
    print("config", args.config)
    print("output", args.output)
    print("adapter", args.adapter)
    print("seed", args.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
