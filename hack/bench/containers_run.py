# Calls containers.run of python3-docker for each line, with the restrictions of a plan's class,
# and answers with the nanoseconds that it took.
import json, sys, time
import docker
from docker.types import LogConfig, Mount, Ulimit

client = docker.from_env(version="auto")
for line in sys.stdin:
    job = json.loads(line)
    c, cgroup = job["class"], job["class"]["cgroup"]
    options = dict(
        remove=True, init=True, read_only=c["read_only_root"], ipc_mode=c["ipc"], network_mode=c["network"],
        user=job["user"], working_dir=c["work_dir"], runtime=c["runtime"], hostname="sandbox",
        security_opt=["no-new-privileges", "seccomp=" + job["seccomp"]], cap_drop=c["cap_drop"],
        mem_limit=cgroup["memory_bytes"], memswap_limit=cgroup["memory_bytes"] + cgroup["swap_bytes"],
        nano_cpus=cgroup["nano_cpus"], pids_limit=cgroup["pids"], shm_size=cgroup["shm_bytes"],
        log_config=LogConfig(type=c["log"]["driver"], config=c["log"]["options"]),
        ulimits=[Ulimit(name=u["name"], soft=u["soft"], hard=u["hard"]) for u in job["ulimits"]],
        tmpfs={t["target"]: f"rw,nosuid,nodev,exec,size={t['size_bytes']},nr_inodes={t['inodes']},mode=1777" for t in c["tmpfs"]},
        mounts=[Mount(b["target"], job["sources"][b["role"]], type="bind", read_only=b["read_only"]) for b in c["binds"]],
        environment=c["env"], entrypoint=job["command"][:1], labels=job["labels"], stop_signal="SIGTERM",
    )
    if cgroup["version"] == 1:
        options["mem_swappiness"] = 0
    began = time.monotonic_ns()
    client.containers.run(c["image"]["id"], job["command"][1:], **options)
    print(time.monotonic_ns() - began, flush=True)
