"""Carries calls out with a process, and waits for it."""

from __future__ import annotations

import functools
import inspect
import os
import selectors
import signal
import subprocess
import tempfile
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Deque, Generic, Iterator, Optional, Type

from ._calls import Call, E, T, executable, not_found
from ._errors import SandboxError

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

CHUNK = 64 << 10
# The first request ends the program and keeps what it did, the second one ends it at once. It is
# SIGTERM, because a process that was started in the background ignores SIGINT.
SIGNALS = (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL)


class Run(Generic[E, T]):
    """A command that runs: iterate over it for what it reports, and ask for its result.

    Use it in a `with` statement: its end ends the command, and waits for that.
    """

    def __init__(self, call: Call[E, T]) -> None:
        self._over = True  # until there is a process
        self._call, self._reader = call, call.reader()
        self._pending: Deque[E] = deque()
        with tempfile.TemporaryFile() as stdin:
            stdin.write(call.stdin or b"")
            stdin.seek(0)
            try:
                self._process = subprocess.Popen(
                    [executable(), *call.argv],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,  # Ctrl-C reaches this process only, which passes it on once
                )
            except FileNotFoundError:
                raise not_found() from None
            except OSError as error:
                raise SandboxError(f"the command {executable()!r} cannot be started: {error.strerror}") from error
        self._over = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]
        self._selector.register(self._process.stderr, selectors.EVENT_READ)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[E]:
        return self

    def __next__(self) -> E:
        try:
            while not self._pending:
                piece = self._read()
                if piece is None:
                    self._reader.finish(self._process.returncode)
                    raise StopIteration
                self._pending.extend(self._reader.feed(piece))
            event = self._pending.popleft()
            self._call.output(event)
            return event
        except StopIteration:
            raise
        except BaseException:
            self.close()
            raise

    def result(self) -> T:
        """Waits for the end, and returns the answer of the command."""
        for _ in self:
            pass
        return self._reader.finish(self._process.returncode)

    def stop(self) -> None:
        """Asks the program to end, and keeps its outputs: see `result`. A second call, at least a second later, ends it
        at once."""
        if not self._over:
            self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Ends the command if it still runs, and waits for its end. Ctrl-C while it waits makes it faster."""
        interrupted: Optional[KeyboardInterrupt] = None
        for number in SIGNALS:
            if self._over:
                break
            try:
                self._process.send_signal(number)
                while self._read() is not None:
                    pass
            except KeyboardInterrupt as error:
                interrupted = error
        if interrupted:
            raise interrupted

    def __enter__(self) -> Run[E, T]:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.stop()

    def _read(self) -> Optional[bytes]:
        """The next piece of stdout; None once the command has ended."""
        process = self._process
        while not self._over:
            stdout_open = not process.stdout.closed  # type: ignore[union-attr]
            ready = self._selector.select(None if stdout_open else 0.02)
            for key, _ in ready:
                piece = os.read(key.fd, CHUNK)
                if not piece:
                    self._selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                elif key.fileobj is process.stderr:
                    self._reader.feed_stderr(piece)
                else:
                    return piece
            # A process that the command left behind may hold its stderr.
            if not stdout_open and (not self._selector.get_map() or not ready and process.poll() is not None):
                process.wait()
                process.stderr.close()  # type: ignore[union-attr]
                self._selector.close()
                self._over = True
        return None


def named(function: Callable[..., Any], answer: str) -> Callable[[Callable[..., Any]], Any]:
    """Gives a function the name, the parameters and the documentation of another one."""

    def decorate(wrapper: Callable[..., Any]) -> Any:
        functools.update_wrapper(wrapper, function)
        wrapper.__module__ = "evalbox"
        wrapper.__annotations__ = {**function.__annotations__, "return": answer}
        wrapper.__signature__ = inspect.signature(function).replace(return_annotation=answer)  # type: ignore
        return wrapper

    return decorate


def waits(function: Callable[P, Call[E, T]]) -> Callable[P, T]:
    """Makes a function that carries a call out and returns its answer."""

    @named(function, function.__annotations__["return"].split(", ")[1].rstrip("]"))
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        with Run(function(*args, **kwargs)) as process:
            return process.result()

    return wrapper  # type: ignore[no-any-return]


def starts(function: Callable[P, Call[E, T]]) -> Callable[P, Run[E, T]]:
    """Makes a function that begins a call, which its caller follows."""

    @named(function, function.__annotations__["return"].replace("Call", "Run"))
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Run[E, T]:
        return Run(function(*args, **kwargs))

    return wrapper  # type: ignore[no-any-return]
