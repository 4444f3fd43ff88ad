"""What is raised: failures of evalbox, never those of a program."""

from __future__ import annotations

from typing import Sequence, Tuple


class SandboxError(Exception):
    """The sandbox failed or refused. A program that fails is a result, not an error.

    `problems` has all problems, `hints` what to try, and `code` the exit code of the command.
    """

    def __init__(self, *problems: str, hints: Sequence[str] = (), code: int = 125) -> None:
        super().__init__("\n".join([*problems, *(f"hint: {hint}" for hint in hints)]))
        self.problems: Tuple[str, ...] = problems
        self.hints: Tuple[str, ...] = tuple(hints)
        self.code = code


class SandboxNotFound(SandboxError):
    """The command `sandbox` is not on this machine, or is not on PATH."""
