"""Every call of the command `sandbox` as a value: its command line, and the reader of its answer.

Nothing here starts a process. The functions without an underscore become functions of
`evalbox` and, with the same parameters, coroutines of `evalbox.aio`.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Callable, Generic, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ._errors import SandboxError, SandboxNotFound
from ._model import Document, Evaluation, Leaderboard, Outcome, Result

E = TypeVar("E")
T = TypeVar("T")
Path = Union[str, "os.PathLike[str]"]
Duration = Union[str, float, timedelta]
Size = Union[str, int]
Options = Mapping[str, Any]
OnOutput = Callable[[str, str], object]

MAX_LINE = 256 << 20
"""Bound of one line or document of the command, in bytes, far above the largest result."""
_MAX_STDERR = 64 << 10


@dataclass(frozen=True)
class Event:
    """One event of a run: docs/events.md describes them. `text` is output, `data` its bytes."""

    event: str
    at: str = ""
    run_id: str = ""
    why: str = ""
    stream: str = ""
    text: str = ""
    data: bytes = b""
    document: Document = field(default_factory=dict, compare=False, repr=False)


class Reader(Generic[E, T]):
    """Reads what the command prints, in pieces of any size. It holds one line at most."""

    def __init__(self) -> None:
        self._parts: List[bytes] = []
        self._size = 0
        self._stderr = b""
        self._error: Optional[SandboxError] = None

    def feed(self, piece: bytes) -> Iterator[E]:
        """Takes a piece of stdout, and returns what it completes."""
        *lines, rest = piece.split(b"\n")
        for line in lines:
            whole, self._parts, self._size = b"".join([*self._parts, line]), [], 0
            yield from self._line(whole)
        self._keep(rest)

    def feed_stderr(self, piece: bytes) -> None:
        self._stderr = (self._stderr + piece)[-_MAX_STDERR:]

    def finish(self, code: int) -> T:
        """The answer, once the command has ended; or the failure of the command, as an exception."""
        if self._error:
            raise self._error
        answer = self._answer(code)
        if answer is None:
            raise self._broken(code)
        return answer

    def _keep(self, rest: bytes) -> None:
        self._size += len(rest)
        if self._size > MAX_LINE:
            raise SandboxError(f"the command printed a line of more than {MAX_LINE >> 20} MiB")
        self._parts += [rest] if rest else []

    def _line(self, line: bytes) -> Iterator[E]:
        document = self._parse(line)
        if document.get("schema") == "evalbox/error/v1":
            self._error = SandboxError(*document["problems"], hints=document["hints"], code=document["code"])
        else:
            yield from self._value(document)

    def _parse(self, text: bytes) -> Document:
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise SandboxError(
                f"the command printed {text[:80].decode(errors='replace')!r}, which is not a JSON object",
                hints=[f"see whether {shutil.which(executable())} is the command of evalbox: sandbox version"],
            )
        return document

    def _broken(self, code: int) -> SandboxError:
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        said, hints = self._said()
        return SandboxError(f"the command {ended} without an answer", *said[-20:], hints=hints, code=code)

    def _said(self) -> Tuple[List[str], List[str]]:
        """The problems and the hints on stderr."""
        lines = [x[9:] if x.startswith("sandbox: ") else x for x in self._stderr.decode(errors="replace").splitlines()]
        hints = [line[6:] for line in lines if line.startswith("hint: ")]
        return [line for line in lines if not line.startswith("hint: ")], hints

    def _value(self, document: Document) -> Iterator[E]:
        raise NotImplementedError

    def _answer(self, code: int) -> Optional[T]:
        raise NotImplementedError


class _Events(Reader[Event, Result]):
    _result: Optional[Result] = None

    def _value(self, document: Document) -> Iterator[Event]:
        known = {name: document[name] for name in ("event", "at", "run_id", "why", "stream") if name in document}
        data = base64.b64decode(document["base64"]) if "base64" in document else document.get("text", "").encode()
        event = Event(**{"event": "", **known}, text=data.decode(errors="replace"), data=data, document=document)
        if event.event == "ended":
            self._result = Result.of(document["result"], document.get("final"), document.get("summary", ""))
        if event.event == "error":
            problems = [line.strip() for line in document["error"].splitlines()]
            self._error = SandboxError(*problems, hints=document.get("hints", ()), code=document["code"])
        else:
            yield event

    def _answer(self, code: int) -> Optional[Result]:
        return self._result


class _Rows(Reader[Evaluation, int]):
    _count = 0

    def _value(self, document: Document) -> Iterator[Evaluation]:
        self._count += 1
        yield Evaluation.of(document)

    def _answer(self, code: int) -> Optional[int]:
        return self._count if code >= 0 and self._count else None


class _Document(Reader[T, T]):
    def __init__(self, of: Callable[[Document], T]) -> None:
        super().__init__()
        self._of = of

    def feed(self, piece: bytes) -> Iterator[T]:
        self._keep(piece)
        return iter(())

    def _value(self, document: Document) -> Iterator[T]:
        yield self._of(document)

    def _answer(self, code: int) -> Optional[T]:
        whole = b"".join(self._parts)
        values = list(self._line(whole)) if whole and code >= 0 else []
        if self._error:
            raise self._error
        return values[0] if values else None


class _Outcome(_Document[Outcome]):
    def _answer(self, code: int) -> Optional[Outcome]:
        outcome = super()._answer(code)
        if outcome and outcome.status == "failed":  # neither the contract nor the program is the reason
            raise SandboxError(outcome.error, hints=self._said()[1], code=code)
        return outcome


@dataclass(frozen=True)
class Call(Generic[E, T]):
    """A command line without the command, and how its answer is read."""

    argv: Tuple[str, ...]
    reader: Callable[[], Reader[E, T]]
    stdin: Optional[bytes] = None
    on_output: Optional[OnOutput] = None

    def output(self, event: E) -> None:
        """Passes the output of the program on to the callback."""
        if self.on_output and isinstance(event, Event) and event.event == "output":
            self.on_output(event.stream, event.text)


def executable() -> str:
    """The command: EVALBOX_SANDBOX, or `sandbox` on PATH."""
    return os.environ.get("EVALBOX_SANDBOX") or "sandbox"


def not_found() -> SandboxNotFound:
    return SandboxNotFound(
        f"there is no command {executable()!r}",
        hints=["install it (see the README of evalbox), add its directory to PATH, or name it in EVALBOX_SANDBOX"],
    )


def _flags(options: Optional[Options], **named: Any) -> List[str]:
    flags: List[str] = []
    for name, value in {**named, **(options or {})}.items():
        flag = "--" + name.strip("-").replace("_", "-")
        if isinstance(value, Mapping):
            joint = ":" if flag == "--mount" else "="
            value = [f"{os.fspath(k)}{joint}{v}" for k, v in value.items()]
        for one in value if isinstance(value, (list, tuple)) else [] if value is None else [value]:
            flags.append(flag if one is True else f"{flag}={_word(one)}")
    return flags


def _word(value: Any) -> str:
    if value is False:
        return "false"
    if isinstance(value, timedelta):
        return _seconds(value.total_seconds())
    return str(os.fspath(value)) if isinstance(value, os.PathLike) else str(value)


def _seconds(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".") + "s"


def _duration(value: Optional[Duration]) -> Any:
    return _seconds(value) if isinstance(value, (int, float)) else value


def _bytes(text: Union[str, bytes, None]) -> Optional[bytes]:
    return text.encode() if isinstance(text, str) else text


def _paths(paths: Union[Path, Sequence[Path]]) -> List[str]:
    return [_path(p) for p in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]


def _path(path: Path) -> str:
    text = os.fspath(path)
    return "./" + text if text.startswith("-") and text != "-" else text


def run(
    program: Union[Path, Sequence[str]],
    *args: str,
    input: Optional[Path] = None,
    final: Optional[Path] = None,
    timeout: Optional[Duration] = None,
    memory: Optional[Size] = None,
    cpus: Optional[float] = None,
    gpus: Union[str, int, None] = None,
    env: Optional[Mapping[str, str]] = None,
    stdin: Union[str, bytes, None] = None,
    mounts: Optional[Mapping[str, str]] = None,
    image: Optional[str] = None,
    allow_host: Union[str, Sequence[str]] = (),
    name: Optional[str] = None,
    on_output: Optional[OnOutput] = None,
    options: Optional[Options] = None,
) -> Call[Event, Result]:
    """Runs one program in a fresh container, and returns what happened.

    program: the path of a script, with its arguments after it; or a list, a command of the
        image, such as ["python3", "-c", "print(1)"]; or "-" for the Python script in stdin
    input: directory that the program finds, read-only, as ./input
    final: directory for what the program leaves in ./final; by default it is in the record
    timeout: seconds, or a text such as "2h"; memory: bytes, or a text such as "8g"
    gpus: a number, "all", or devices such as "0,1"
    env: environment variables; stdin: the program's stdin, empty by default
    mounts: files and directories of this machine, each with the path where the program finds it
    allow_host: host that the program may reach, or several; the settings must permit it
    on_output: called with "stdout" or "stderr" and each piece of output, while the program runs
    options: every other flag of `sandbox run`, such as {"pids-limit": 64, "keep": True}

    A program that fails is a result. SandboxError is raised if the sandbox fails or refuses.
    """
    flags = _flags(
        options,
        input=input,
        final=final,
        timeout=_duration(timeout),
        memory=memory,
        cpus=cpus,
        gpus=gpus,
        env=env,
        mount=mounts,
        image=image,
        allow_host=allow_host if isinstance(allow_host, str) else list(allow_host),
        name=name,
        interactive=True if stdin is not None and program != "-" else None,
    )
    words = [_path(program), *args] if isinstance(program, (str, os.PathLike)) else ["--", *program, *args]
    argv = ["run", "--json-lines", *flags, *words]
    return Call(tuple(map(str, argv)), _Events, _bytes(stdin), on_output)


def batch(
    scripts: Union[Path, Sequence[Path]],
    *,
    task: Path,
    jobs: Optional[int] = None,
    grader: Optional[Path] = None,
    answers: Optional[Path] = None,
    seeds: Union[str, Sequence[int], None] = None,
    results: Optional[Path] = None,
    output: Optional[Path] = None,
    timeout: Optional[Duration] = None,
    memory: Optional[Size] = None,
    cpus: Optional[float] = None,
    gpus: Union[str, int, None] = None,
    env: Optional[Mapping[str, str]] = None,
    image: Optional[str] = None,
    options: Optional[Options] = None,
) -> Call[Evaluation, int]:
    """Evaluates scripts of a task, `jobs` at once. Iterate over it for the evaluations.

    Each evaluation comes when its script has ended. The same call goes on after an
    interruption: evaluations that the results file (results.jsonl) has come first.
    `rank` returns the leaderboard of that file. SandboxError is raised at the end if the
    batch could not do everything; the evaluations before it are true.

    scripts: paths of scripts, or directories with *.py files
    options: every other flag of `sandbox batch`, such as {"budget": "8h", "halving": "1:27"}
    """
    flags = _flags(
        options,
        task=task,
        jobs=jobs,
        grader=grader,
        answers=answers,
        seeds=",".join(map(str, seeds)) if isinstance(seeds, (list, tuple, range)) else seeds,
        results=results,
        output=output,
        timeout=_duration(timeout),
        memory=memory,
        cpus=cpus,
        gpus=gpus,
        env=env,
        image=image,
    )
    return Call(("batch", "--json-lines", *flags, *_paths(scripts)), _Rows)


def evaluate(
    script: Path,
    *,
    task: Path,
    grader: Optional[Path] = None,
    answers: Optional[Path] = None,
    seed: Optional[int] = None,
    output: Optional[Path] = None,
    timeout: Optional[Duration] = None,
    memory: Optional[Size] = None,
    cpus: Optional[float] = None,
    gpus: Union[str, int, None] = None,
    env: Optional[Mapping[str, str]] = None,
    image: Optional[str] = None,
    options: Optional[Options] = None,
) -> Call[Evaluation, Evaluation]:
    """Evaluates one script of a task. The parameters are those of `batch`.

    options: every other flag of `sandbox evaluate`, such as {"sample": "sample.csv"}
    """
    flags = _flags(
        options,
        task=task,
        grader=grader,
        answers=answers,
        seeds=seed,
        output=output,
        timeout=_duration(timeout),
        memory=memory,
        cpus=cpus,
        gpus=gpus,
        env=env,
        image=image,
    )
    return Call(("evaluate", "--json", *flags, _path(script)), lambda: _Document(Evaluation.of))


def rank(
    results: Path = "results.jsonl", *, task: Optional[Path] = None, options: Optional[Options] = None
) -> Call[Leaderboard, Leaderboard]:
    """The leaderboard of a results file. No engine is needed."""
    return Call(("rank", "--json", *_flags(options, task=task), _path(results)), lambda: _Document(Leaderboard.of))


def exec_contract(
    contract: Union[Path, Mapping[str, Any]],
    *,
    root: Optional[Path] = None,
    image: Optional[str] = None,
    options: Optional[Options] = None,
) -> Call[Outcome, Outcome]:
    """Executes a contract: the path of a YAML or JSON file, or the contract itself as a mapping.

    A contract that is refused, or not met, is an outcome: see `success`.

    root: directory that the paths of the contract are relative to; for a mapping the current one
    options: every other flag of `sandbox exec`, such as {"approve": "Ada", "reason": "a test"}
    """
    text = json.dumps(contract).encode() if isinstance(contract, Mapping) else None
    place = "-" if isinstance(contract, Mapping) else _path(contract)
    argv = ("exec", "--json", *_flags(options, root=root, image=image), place)
    return Call(argv, lambda: _Outcome(Outcome.of), text)
