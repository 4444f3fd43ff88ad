"""A working directory that goes on from one run to the next."""

from __future__ import annotations

import base64
import errno
import inspect
import os
import stat
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

from . import _calls
from ._calls import Call, Duration, Event, OnOutput
from ._model import Result
from ._sync import Run

DIRECTORY = "/work/final/files"
"""The working directory, as programs see it."""
READ_LIMIT = 100 << 20

# The directory has its name when all files are there: a run that ends earlier changes nothing.
_SCRIPT = """{ mkdir final/copy && cp -a input/. final/copy/ && mv final/copy final/files && cd final/files; } || exit 125
cd -- "$1" || exit 1
shift
exec "$@"
"""


class Files:
    """The files of a workspace on this machine, and the calls of its programs."""

    def __init__(self, **settings: Any) -> None:
        inspect.signature(_calls.run).bind([], **settings)  # a wrong name is reported now
        for name in ("input", "final"):
            if name in settings:
                raise TypeError(f"a workspace has no parameter {name!r}: its files are the input and the output")
        self._settings = settings
        self._root = Path(tempfile.mkdtemp(prefix="evalbox-workspace-"))
        self._files, self._next, self._old = self._root / "files", self._root / "next", self._root / "old"
        self._files.mkdir()
        self._files.chmod(0o755)

    @property
    def directory(self) -> Path:
        """The files on this machine. Programs wrote them: follow none of its symbolic links."""
        return self._files

    def _call(
        self,
        command: Sequence[str],
        cwd: Optional[str],
        env: Optional[Mapping[str, str]],
        more: Mapping[str, Any],
    ) -> Call[Event, Result]:
        if isinstance(command, str):
            raise TypeError('the command is a text: give its words, such as ["ls", "-l"], or ["sh", "-c", command]')
        given = {name: value for name, value in more.items() if value is not None}
        env = {**(self._settings.get("env") or {}), **(env or {})}
        settings: Dict[str, Any] = {**self._settings, **given, "input": self._files, "final": self._next, "env": env}
        self._remove(self._next)
        program = ["sh", "-c", _SCRIPT, "sh", cwd or ".", *command]
        return _calls.run(program, **settings)

    def _accept(self, result: Result) -> Result:
        """Takes over what a run left. One whose processes may still be there changes nothing."""
        new = self._next / "files"
        if result.container_left and _is(self._next, stat.S_ISDIR):
            self._next.rename(tempfile.mkdtemp(dir=self._root))  # deleted at the end: outputs may still come there
        elif _is(new, stat.S_ISDIR):
            _open_modes(new)
            self._files.rename(self._old)
            new.rename(self._files)
            self._remove(self._old)
        self._remove(self._next)
        outputs = [
            replace(
                output,
                path=output.path[6:],
                path_base64=_cut(output.path_base64),
                file=self._files / output.file.relative_to(new),
            )
            for output in result.outputs
            if new in output.file.parents
        ]
        summary = result.summary.replace(f" in {self._next}", "")
        return replace(result, outputs=tuple(outputs), final=self._files, summary=summary)

    def _remove(self, path: Path) -> None:
        if _is(path, stat.S_ISDIR):
            _open_modes(path)
            _delete(path)

    def _read(self, path: str, limit: int) -> bytes:
        with self._parent(path, make=False) as (parent, name):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
            with open(fd, "rb") as file:
                info = os.fstat(fd)
                if stat.S_ISDIR(info.st_mode):
                    raise IsADirectoryError(errno.EISDIR, "is a directory", path)
                if not stat.S_ISREG(info.st_mode):
                    raise PermissionError(errno.EPERM, "is not a regular file", path)
                if info.st_size > limit:
                    raise OSError(errno.EFBIG, f"has {info.st_size} bytes, more than the limit of {limit}", path)
                return file.read(limit)

    def _write(self, path: str, contents: Union[str, bytes]) -> None:
        data = contents.encode() if isinstance(contents, str) else contents
        with self._parent(path, make=True) as (parent, name):
            if _is(name, stat.S_ISDIR, parent):
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            with tempfile.NamedTemporaryFile(dir=self._root, delete=False) as file:
                file.write(data)
                os.fchmod(file.fileno(), 0o644)
            os.rename(file.name, name, dst_dir_fd=parent)

    @contextmanager
    def _parent(self, path: str, make: bool) -> Iterator[Tuple[int, str]]:
        """The open directory of a file, and the name of the file. No link is followed."""
        *parents, name = self._parts(path)
        fd = os.open(self._files, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in parents:
                if make and not _is(part, lambda mode: True, fd):
                    os.mkdir(part, dir_fd=fd)
                    os.chmod(part, 0o755, dir_fd=fd)
                self._refuse_link(part, fd, path)
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
                os.close(fd)
                fd = inner
            if not make:
                self._refuse_link(name, fd, path)
            yield fd, name
        except OSError as error:
            error.filename = path  # the whole path, not one part
            raise
        finally:
            os.close(fd)

    def _parts(self, path: str) -> List[str]:
        pure = PurePosixPath(path)
        if pure.is_absolute() and DIRECTORY in map(str, [pure, *pure.parents]):
            pure = pure.relative_to(DIRECTORY)
        if pure.is_absolute() or ".." in pure.parts:
            raise PermissionError(errno.EPERM, f"is not below {DIRECTORY}; no other files go on to the next run", path)
        if not pure.parts:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return list(pure.parts)

    def _refuse_link(self, name: str, parent: int, path: str) -> None:
        if _is(name, stat.S_ISLNK, parent):
            raise PermissionError(errno.EPERM, "is a symbolic link or behind one; links are not followed", path)

    def _close(self) -> None:
        self._remove(self._next)
        self._remove(self._files)
        _delete(self._root)


class Workspace(Files):
    """A working directory for many commands, each in a fresh container.

    Only its files go on from one command to the next: no process, no variable, no package that
    was installed elsewhere. Links stay links; permissions are not kept, except that a file is
    executable. The parameters are those of `evalbox.run`, and the same for all commands.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._lock = threading.Lock()

    def exec(
        self,
        command: Sequence[str],
        *,
        stdin: Union[str, bytes, None] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[Duration] = None,
        on_output: Optional[OnOutput] = None,
    ) -> Result:
        """Runs a command of the image in the working directory, or below it in `cwd`.

        Files survive a time limit and other ends. The exit code is 125 if the files could not
        be copied into the container; the files are then the same as before.
        """
        with self._lock:
            call = self._call(command, cwd, env, {"stdin": stdin, "timeout": timeout, "on_output": on_output})
            with Run(call) as run:
                result = run.result()
            return self._accept(result)

    def read_file(self, path: str, *, limit: int = READ_LIMIT) -> bytes:
        """The content of a regular file. A larger one, a link and a directory are an OSError."""
        with self._lock:
            return self._read(path, limit)

    def read_text(self, path: str, *, limit: int = READ_LIMIT) -> str:
        """The content of a regular file as UTF-8."""
        return self.read_file(path, limit=limit).decode()

    def write_file(self, path: str, contents: Union[str, bytes]) -> None:
        """Writes a file, and makes its directories."""
        with self._lock:
            self._write(path, contents)

    def close(self) -> None:
        """Deletes the files."""
        with self._lock:
            self._close()

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


def _is(path: Union[str, Path], kind: Any, parent: Optional[int] = None) -> bool:
    try:
        return bool(kind(os.lstat(path, dir_fd=parent).st_mode))
    except FileNotFoundError:
        return False


def _cut(path_base64: str) -> str:
    return base64.b64encode(base64.b64decode(path_base64)[6:]).decode()


def _open_modes(top: Path) -> None:
    """Lets this user change, and the user of the next run read, what a program left."""
    _tool("chmod", "-R", "a=rX,u+w", top)


def _delete(top: Path) -> None:
    _tool("rm", "-rf", top)
    if os.path.lexists(top):
        raise OSError(errno.ENOTEMPTY, "cannot be deleted", str(top))


def _tool(*command: Union[str, Path]) -> None:
    """Runs a command of this machine. It follows no link, and no directory is too deep for it."""
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
