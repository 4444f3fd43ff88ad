"""The documents of the command as frozen dataclasses."""

from __future__ import annotations

import base64
import html
import os
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple, Type, TypeVar, Union, cast
from typing import get_args, get_origin, get_type_hints

from ._errors import SandboxError

Document = Mapping[str, Any]
D = TypeVar("D")


@lru_cache(maxsize=None)
def _hints(cls: Any) -> Dict[str, Any]:
    return get_type_hints(cls)


def _convert(hint: Any, value: Any) -> Any:
    if get_origin(hint) is Union:  # Optional
        return None if value is None else _convert(get_args(hint)[0], value)
    if get_origin(hint) is tuple:
        return tuple(_convert(get_args(hint)[0], item) for item in value or ())
    if is_dataclass(hint):
        return decode(hint, value)
    return value


def decode(cls: Type[D], source: Any, **more: Any) -> D:
    """Turns a document into a dataclass. Fields that the class does not have are skipped."""
    if not isinstance(source, Mapping):
        raise SandboxError(f"a {cls.__name__} in the answer of the command is not an object")
    hints, values = _hints(cast(Any, cls)), dict(more)
    for entry in fields(cast(Any, cls)):
        if entry.name in source and entry.name not in more:
            values[entry.name] = _convert(hints[entry.name], source[entry.name])
        elif entry.default is MISSING and entry.default_factory is MISSING and entry.name not in more:
            raise SandboxError(
                f"a {cls.__name__} in the answer of the command has no {entry.name!r}",
                hints=["the command is older than this package: update the command 'sandbox'"],
            )
    return cls(**values)


class _Answer:
    """What a call returns, in one line."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"


# ---- evalbox/result/v1: docs/result.md describes each field ----


@dataclass(frozen=True)
class Image:
    name: str
    id: str
    digest: str
    platform: str
    locked: bool
    reported: str = ""


@dataclass(frozen=True)
class Isolation:
    grade: str
    missing: Tuple[str, ...]
    runtime: str
    own_kernel: bool
    user_namespace: bool
    seccomp: str
    lsm: str
    uid: str
    terminals_bounded: bool


@dataclass(frozen=True)
class Mount:
    target: str
    type: str
    read_only: bool


@dataclass(frozen=True)
class Enforced:
    engine: str
    api_version: str
    runtime: str
    cgroup_version: int
    user: str
    network: str
    transfer: str
    timeout_seconds: float
    soft_timeout_seconds: float
    soft_signal: str
    grace_seconds: float
    memory_bytes: int
    swap_bytes: int
    cpus: float
    pids: int
    proxy_pids: int
    shm_bytes: int
    tmp_bytes: int
    scratch_bytes: int
    disk_bytes: int
    disk: str
    output_limit_bytes: int
    stream_file_bytes: int
    read_only_root: bool
    no_new_privileges: bool
    cap_drop: Tuple[str, ...]
    seccomp: str
    isolation: Isolation
    ulimits: Tuple[str, ...]
    mounts: Tuple[Mount, ...]
    gpus: Tuple[str, ...]
    gpu_driver: str
    gpus_shared: bool
    unenforced: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Contention:
    verdict: str
    ran_seconds: float
    waited_seconds: float
    lacked_seconds: float
    throttled_seconds: float
    frozen_seconds: float
    source: str


@dataclass(frozen=True)
class Resources:
    cpu_seconds: float
    peak_memory_bytes: int
    oom_kills: int
    source: str
    contention: Optional[Contention] = None


@dataclass(frozen=True)
class Network:
    level: str
    allow: Tuple[str, ...]
    deny: Tuple[str, ...]
    requests: int
    refused: int
    bytes_up: int
    bytes_down: int
    log: str
    log_dropped: int


@dataclass(frozen=True)
class Pool:
    waited: bool
    reason: str = ""


@dataclass(frozen=True)
class Observed:
    network_attempts: Optional[int]
    network_why: str
    watched: Tuple[str, ...]
    opened: Tuple[str, ...]
    watch_why: str


@dataclass(frozen=True)
class Preload:
    modules: Tuple[str, ...]
    used: bool
    reason: str


@dataclass(frozen=True)
class GPUMetrics:
    id: str
    mean_utilization: float
    peak_utilization: float
    peak_memory_bytes: int


@dataclass(frozen=True)
class CustomMetric:
    name: str
    count: int
    not_finite: int
    last: Optional[float]
    min: Optional[float]
    max: Optional[float]
    last_step: Optional[float]


@dataclass(frozen=True)
class Metrics:
    points: int
    interval_seconds: float
    mean_cpus: float
    peak_cpus: float
    peak_processes: int
    peak_disk_bytes: int
    gpus: Tuple[GPUMetrics, ...]
    custom: Tuple[CustomMetric, ...]
    rejected: int


@dataclass(frozen=True)
class StoppedBy:
    rule: str
    reason: str


@dataclass(frozen=True)
class Output:
    """A file of the program. `file` is its place on this machine."""

    path: str
    size_bytes: int
    sha256: str
    mode: str
    path_base64: str = ""
    file: Path = field(default_factory=Path, compare=False)


@dataclass(frozen=True)
class SkippedOutput:
    path: str
    kind: str
    size_bytes: int
    reason: str
    path_base64: str = ""


@dataclass(frozen=True)
class Vanished:
    files: int
    bytes: int
    complete: bool
    names: Tuple[str, ...]


@dataclass(frozen=True)
class TreeEntry:
    path: str
    kind: str
    size_bytes: int
    sha256: str
    mode: str
    path_base64: str = ""


@dataclass(frozen=True)
class Tree:
    target: str
    complete: bool
    entries: int
    size_bytes: int
    not_copied: Tuple[SkippedOutput, ...]
    created: Tuple[TreeEntry, ...]
    changed: Tuple[TreeEntry, ...]
    deleted: Tuple[TreeEntry, ...]
    skipped: Tuple[SkippedOutput, ...]


@dataclass(frozen=True, repr=False)
class Result(_Answer):
    """What one program did in one container."""

    schema: str
    id: str
    name: str
    labels: Mapping[str, str]
    status: str
    fault: str
    exit_code: int
    signal: int
    timed_out: bool
    deadline: str
    oom_killed: bool
    explanation: str
    stdout: str
    stderr: str
    stdout_bytes: int
    stderr_bytes: int
    stdout_truncated: bool
    stderr_truncated: bool
    output_complete: bool
    started_at: str
    finished_at: str
    duration_seconds: float
    setup_seconds: float
    teardown_seconds: float
    score: Optional[float]
    score_unfinished: bool
    is_error: bool
    error_reason: str
    error_traceback: Optional[str]
    error_summary: str
    image: Image
    enforced: Enforced
    resources: Resources
    outputs: Tuple[Output, ...]
    outputs_skipped: Tuple[SkippedOutput, ...]
    trees: Tuple[Tree, ...]
    warnings: Tuple[str, ...]
    outputs_left_out: int = 0
    container_left: bool = False
    recovered: bool = False
    score_cut: bool = False
    network: Optional[Network] = None
    pool: Optional[Pool] = None
    observed: Optional[Observed] = None
    preload: Optional[Preload] = None
    metrics: Optional[Metrics] = None
    stopped_by: Optional[StoppedBy] = None
    vanished: Optional[Vanished] = None
    final: Optional[Path] = None
    """The directory of the outputs."""
    summary: str = field(default="", compare=False)
    document: Document = field(default_factory=dict, compare=False)
    """The whole document, with fields that this version of the package does not know."""

    @property
    def ok(self) -> bool:
        """The program ended by itself, with 0 and without a traceback."""
        return self.status == "exited" and not self.is_error

    @property
    def conclusive(self) -> bool:
        """The end says something about the program: its environment and the caller did not end it."""
        return self.fault in ("none", "program")

    def __str__(self) -> str:
        return self.summary or self.explanation

    def _repr_html_(self) -> str:
        return _html_end(self.ok, str(self), self.error_traceback or self.error_summary, self.warnings)

    @classmethod
    def of(cls, document: Document, final: Optional[str] = None, summary: str = "") -> Result:
        """The result of a document, as `sandbox show --json` prints it."""
        place = Path(final) if final else None
        outputs = [
            decode(Output, o, file=(place or Path()) / os.fsdecode(_name(o))) for o in document.get("outputs", ())
        ]
        return decode(cls, document, outputs=tuple(outputs), final=place, summary=summary, document=document)


def _name(output: Document) -> bytes:
    if output.get("path_base64"):
        return base64.b64decode(output["path_base64"])
    return str(output["path"]).encode()


# ---- evalbox/evaluation/v1: docs/evaluate.md describes each field ----


@dataclass(frozen=True)
class Limits:
    setup_sha256: str
    timeout_seconds: float
    memory_bytes: int
    pids: int
    shm_bytes: int
    tmp_bytes: int
    scratch_bytes: int
    disk_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class RunFacts:
    id: str
    status: str
    fault: str
    deadline: str
    explanation: str
    image_id: str
    gpus: Tuple[str, ...]
    oom_killed: bool
    output_truncated: bool


@dataclass(frozen=True)
class Grading:
    run: Optional[RunFacts]
    score: Optional[float]
    failure: str
    ended: bool
    canceled: bool
    traceback: Optional[str]
    score_cut: bool = False


@dataclass(frozen=True)
class Submission:
    ok: bool
    failure: str
    problems: Tuple[str, ...]
    notes: Tuple[str, ...]
    rows: int
    sample_rows: int


@dataclass(frozen=True, repr=False)
class Evaluation(_Answer):
    """How one script did in one task."""

    schema: str
    name: str
    competition_id: str
    script_sha256: str
    original_sha256: str
    baseline_value: Optional[float]
    setup_sha256: str
    limits: Optional[Limits]
    seed: Optional[int]
    repetition: int
    resource: int
    repairs: int
    run: Optional[RunFacts]
    score: Optional[float]
    stdout: str
    stderr: str
    exit_code: int
    duration_seconds: float
    is_error: bool
    error_traceback: Optional[str]
    error_reason: str
    error_summary: str
    warnings: Tuple[str, ...]
    self_reported: bool
    score_unfinished: bool
    graded_score: Optional[float]
    grading: Optional[Grading]
    submission: Optional[Submission]
    cached: bool
    failure: str
    why: str
    metric_direction: str = ""
    score_cut: bool = False
    document: Document = field(default_factory=dict, compare=False)

    @property
    def ok(self) -> bool:
        """The script ran and ended well. `why` says what else a reader has to know."""
        return not self.is_error and not self.failure and self.run is not None

    @property
    def best_score(self) -> Optional[float]:
        """The score of the grader if there is a grader, else that of the script."""
        return self.graded_score if self.grading is not None else self.score

    def __str__(self) -> str:
        ended = self.failure or (self.run.status if self.run else self.error_reason)
        parts = [self.name, ended.replace("_", " ") + (f" {self.exit_code}" if ended == "exited" else "")]
        parts += [f"graded {self.graded_score:g}"] if self.graded_score is not None else []
        parts += [f"score {self.score:g}"] if self.score is not None else []
        parts += [f"seed {self.seed}"] if self.seed is not None else []
        parts += [self.why] if self.why and self.why != self.failure else []
        return " · ".join(parts + [f"{self.duration_seconds:.2f}s"])

    def _repr_html_(self) -> str:
        return _html_end(self.ok, str(self), self.error_traceback or self.error_summary, self.warnings)

    @classmethod
    def of(cls, document: Document) -> Evaluation:
        return decode(cls, document, document=document)


@dataclass(frozen=True)
class Leaderboard:
    """Evaluations, the best first. `ranks` has the rank of each, 0 for one without a score that counts."""

    metric_direction: str
    baseline_value: Optional[float]
    ranks: Tuple[int, ...]
    evaluations: Tuple[Evaluation, ...]
    document: Document = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, document: Document) -> Leaderboard:
        rows = tuple(Evaluation.of(e) for e in document.get("evaluations", ()))
        return decode(cls, document, evaluations=rows, document=document)

    def _rows(self) -> Tuple[Tuple[str, ...], ...]:
        return tuple(
            (str(rank or "-"), e.name, "" if e.best_score is None else f"{e.best_score:.6g}", e.why)
            for rank, e in zip(self.ranks, self.evaluations)
        )

    def __str__(self) -> str:
        rows = (("RANK", "NAME", "SCORE", "WHY"),) + self._rows()
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in rows)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("rank", "name", "score", "why"))
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._rows()
        )
        return f"<table><tr>{head}</tr>{rows}</table>"


def _html_end(ok: bool, line: str, detail: str, warnings: Tuple[str, ...]) -> str:
    parts = [f'<div><span style="color:{"green" if ok else "firebrick"}">●</span> {html.escape(line)}</div>']
    parts += [f"<div>warning: {html.escape(text)}</div>" for text in warnings]
    if detail:
        parts.append(f"<pre>{html.escape(detail[-4000:])}</pre>")
    return "".join(parts)


# ---- evalbox/outcome/v1: docs/contract.md describes each field ----


@dataclass(frozen=True)
class ExitMeaning:
    meaning: str
    action: str
    signal: int
    signal_name: str
    text: str


@dataclass(frozen=True)
class Violation:
    code: str
    line: int
    field: str
    value: str
    rule: str
    hint: str
    sentence: str


@dataclass(frozen=True)
class Difference:
    what: str
    path: str
    problem: str
    expected: str
    got: str


@dataclass(frozen=True)
class Attempt:
    adapter_id: str
    status: str
    code: Optional[int]
    error: str
    run_id: str
    duration_ms: int
    wait_ms: int


@dataclass(frozen=True)
class AdapterCall:
    adapter_id: str
    version: str
    type: str
    operation: str
    target: str
    code: Optional[int]
    value: Any
    cached: bool
    unsent: bool
    attempts: Tuple[Attempt, ...]


@dataclass(frozen=True)
class InputFile:
    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class ContractMount:
    source: str
    target: str
    mode: str


@dataclass(frozen=True)
class Executed:
    command: Tuple[str, ...]
    environment: Tuple[str, ...]
    working_directory: str
    stdin_bytes: int
    stdin_sha256: str
    input_files: Tuple[InputFile, ...]
    image: str
    locked: bool
    profile: str
    timeout_ms: int
    memory_mb: int
    cpu_cores: int
    pids: int
    allow_fork: bool
    filesystem_level: str
    mounts: Tuple[ContractMount, ...]
    network_level: str
    network_allow: Tuple[str, ...]
    network_deny: Tuple[str, ...]


@dataclass(frozen=True)
class Approval:
    schema: str
    id: str
    contract_sha256: str
    root: str
    image: str
    approved_by: str
    reason: str
    approved_at: str
    expires_at: str
    levels: Tuple[str, ...]


@dataclass(frozen=True)
class OutputFile:
    path: str
    size_bytes: int
    sha256: str
    declared: bool
    retention: str


@dataclass(frozen=True)
class Artifact:
    mime_type: str
    data: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True)
class Folder:
    source: str
    target: str
    written: int
    not_written: Tuple[str, ...]


@dataclass(frozen=True)
class CheckPoint:
    list: str
    point: str
    state: str
    detail: str


@dataclass(frozen=True)
class Evidence:
    run_id: str
    path: str
    retention: str


@dataclass(frozen=True)
class Metadata:
    requested_by: str = ""
    requested_at: str = ""
    purpose: str = ""
    evidence_ref: str = ""


@dataclass(frozen=True, repr=False)
class Outcome(_Answer):
    """What the execution of one contract did. `success` says whether the contract was met."""

    schema: str
    execution_id: str
    tool_id: str
    adapter_id: str
    contract_sha256: str
    started: bool
    success: bool
    verdict: str
    status: str
    fault: str
    exit_code: Optional[int]
    signal: int
    timed_out: bool
    exit: Optional[ExitMeaning]
    error: str
    violations: Tuple[Violation, ...]
    stripped: Tuple[Violation, ...]
    differences: Tuple[Difference, ...]
    call: Optional[AdapterCall]
    executed: Optional[Executed]
    approval: Optional[Approval]
    stdout: str
    stderr: str
    stdout_bytes: int
    stderr_bytes: int
    truncated: bool
    output_files: Tuple[OutputFile, ...]
    artifacts: Tuple[Artifact, ...]
    folders: Tuple[Folder, ...]
    network: Optional[Network]
    duration_ms: int
    checklist: Tuple[CheckPoint, ...]
    evidence: Evidence
    unenforced: Tuple[str, ...]
    warnings: Tuple[str, ...]
    metadata: Metadata
    document: Document = field(default_factory=dict, compare=False)

    @property
    def ok(self) -> bool:
        return self.success

    def __str__(self) -> str:
        parts = ["success" if self.success else self.status, f"exit code {self.exit_code}", self.error]
        return " · ".join(part for part in parts if part and part != "exit code None")

    def _repr_html_(self) -> str:
        return _html_end(self.ok, str(self), "\n".join(v.rule for v in self.violations), self.warnings)

    @classmethod
    def of(cls, document: Document) -> Outcome:
        return decode(cls, document, document=document)
