"""The functions of `evalbox` as coroutines. Cancelling a task ends its program, and waits for that."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Deque, Generic, Mapping, Optional, Sequence, Type, TypeVar
from typing import Union

from . import _calls
from ._calls import Call, Duration, E, OnOutput, T, executable, not_found
from ._errors import SandboxError
from ._model import Result
from ._sync import CHUNK, SIGNALS, named
from ._workspace import READ_LIMIT, Files

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

R = TypeVar("R")

__all__ = ["Run", "Workspace", "batch", "evaluate", "exec_contract", "rank", "run", "start"]


class Run(Generic[E, T]):
    """A command that runs, for `async with` and `async for`. See `evalbox.Run`.

    The end of `async with` waits for the end of the command. Leave a loop early only there.
    """

    def __init__(self, call: Call[E, T]) -> None:
        self._call, self._reader = call, call.reader()
        self._pending: Deque[E] = deque()
        self._process: Optional[asyncio.subprocess.Process] = None
        self._stderr: Optional[asyncio.Task[None]] = None
        self._over = False

    async def __aenter__(self) -> Run[E, T]:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    def __aiter__(self) -> Run[E, T]:
        return self

    async def __anext__(self) -> E:
        try:
            while not self._pending:
                piece = await self._read()
                if piece is None:
                    self._finish()
                    raise StopAsyncIteration
                self._pending.extend(self._reader.feed(piece))
            event = self._pending.popleft()
            self._call.output(event)
            return event
        except StopAsyncIteration:
            raise
        except BaseException:
            await self.close()
            raise

    async def result(self) -> T:
        """Waits for the end, and returns the answer of the command."""
        async for _ in self:
            pass
        return self._finish()

    def stop(self) -> None:
        """Asks the program to end, and keeps its outputs: see `result`. A second call, at least a second later, ends it
        at once."""
        self._signal(signal.SIGTERM)

    async def close(self) -> None:
        """Ends the command if it still runs, and waits for its end, also if the task is cancelled again."""
        if self._over or self._process is None:
            return
        ending = asyncio.ensure_future(self._drain())
        cancelled: Optional[asyncio.CancelledError] = None
        for number in SIGNALS:
            if not ending.done():
                self._signal(number)
                try:
                    await asyncio.shield(ending)
                except asyncio.CancelledError as error:
                    cancelled = error
        if cancelled:
            raise cancelled

    def __del__(self) -> None:
        self.stop()

    async def _begin(self) -> asyncio.subprocess.Process:
        if self._process is not None:
            return self._process
        with tempfile.TemporaryFile() as stdin:
            stdin.write(self._call.stdin or b"")
            stdin.seek(0)
            pipe = asyncio.subprocess.PIPE
            begun = asyncio.ensure_future(
                asyncio.create_subprocess_exec(
                    executable(), *self._call.argv, stdin=stdin, stdout=pipe, stderr=pipe, start_new_session=True
                )
            )
            try:
                self._process = await _to_end(begun)
            except asyncio.CancelledError:
                if begun.exception() is None:
                    self._process = begun.result()
                    await self.close()
                raise
            except FileNotFoundError:
                raise not_found() from None
            except OSError as error:
                raise SandboxError(f"the command {executable()!r} cannot be started: {error.strerror}") from error
        return self._process

    async def _read(self) -> Optional[bytes]:
        """The next piece of stdout; None once the command has ended."""
        if self._over:
            return None
        process = await self._begin()
        if self._stderr is None:
            self._stderr = asyncio.ensure_future(_read_all(process.stderr, self._reader.feed_stderr))
        piece = await process.stdout.read(CHUNK)  # type: ignore[union-attr]
        if piece:
            return piece
        while process.returncode is None:  # wait() also waits for the end of stderr in some versions of Python
            await asyncio.sleep(0.01)
        await asyncio.wait([self._stderr], timeout=0.1)  # a process that the command left behind may hold it
        self._stderr.cancel()
        process._transport.close()  # type: ignore[attr-defined]
        self._over = True
        return None

    async def _drain(self) -> None:
        while await self._read() is not None:
            pass

    def _finish(self) -> T:
        code = self._process.returncode if self._process else None
        return self._reader.finish(-1 if code is None else code)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # the event loop is closed
                self._process.send_signal(number)


async def _read_all(stream: Optional[asyncio.StreamReader], feed: Callable[[bytes], None]) -> None:
    while piece := await stream.read(CHUNK):  # type: ignore[union-attr]
        feed(piece)


async def _to_end(awaitable: Awaitable[R]) -> R:
    """Waits for the end of what must not stay half done, also if the task is cancelled."""
    ending = asyncio.ensure_future(awaitable)
    cancelled: Optional[asyncio.CancelledError] = None
    while not ending.done():
        try:
            await asyncio.wait([ending])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        ending.exception()  # nobody else asks for it
        raise cancelled
    return ending.result()


async def _in_thread(function: Callable[..., R], *args: Any) -> R:
    return await _to_end(asyncio.to_thread(function, *args))


def _waits(function: Callable[P, Call[E, T]]) -> Callable[P, Awaitable[T]]:
    @named(function, function.__annotations__["return"].split(", ")[1].rstrip("]"))
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        async with Run(function(*args, **kwargs)) as process:
            return await process.result()

    return wrapper  # type: ignore[no-any-return]


def _starts(function: Callable[P, Call[E, T]]) -> Callable[P, Run[E, T]]:
    @named(function, function.__annotations__["return"].replace("Call", "Run"))
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Run[E, T]:
        return Run(function(*args, **kwargs))

    return wrapper  # type: ignore[no-any-return]


run = _waits(_calls.run)
start = _starts(_calls.run)
batch = _starts(_calls.batch)
evaluate = _waits(_calls.evaluate)
rank = _waits(_calls.rank)
exec_contract = _waits(_calls.exec_contract)


class Workspace(Files):
    """The workspace of `evalbox.Workspace`, with coroutines."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._turn: Optional[asyncio.Lock] = None

    @property
    def _lock(self) -> asyncio.Lock:  # made in the event loop that uses it
        self._turn = self._turn or asyncio.Lock()
        return self._turn

    async def exec(
        self,
        command: Sequence[str],
        *,
        stdin: Union[str, bytes, None] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[Duration] = None,
        on_output: Optional[OnOutput] = None,
    ) -> Result:
        """Runs a command of the image: see `evalbox.Workspace.exec`."""
        async with self._lock:
            more = {"stdin": stdin, "timeout": timeout, "on_output": on_output}
            call = await _in_thread(self._call, command, cwd, env, more)
            async with Run(call) as process:
                result = await process.result()
            return await _in_thread(self._accept, result)

    async def read_file(self, path: str, *, limit: int = READ_LIMIT) -> bytes:
        """The content of a regular file. A larger one, a link and a directory are an OSError."""
        async with self._lock:
            return await _in_thread(self._read, path, limit)

    async def read_text(self, path: str, *, limit: int = READ_LIMIT) -> str:
        """The content of a regular file as UTF-8."""
        return (await self.read_file(path, limit=limit)).decode()

    async def write_file(self, path: str, contents: Union[str, bytes]) -> None:
        """Writes a file, and makes its directories."""
        async with self._lock:
            await _in_thread(self._write, path, contents)

    async def close(self) -> None:
        """Deletes the files."""
        async with self._lock:
            await _in_thread(self._close)

    async def __aenter__(self) -> Workspace:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()
