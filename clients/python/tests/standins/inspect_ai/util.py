"""The interface of sandboxes of Inspect, as far as a provider sees it: names, parameters and types."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, Callable, Dict, Generic, List, Optional, Type, TypeVar, Union

T = TypeVar("T")
registered: Dict[str, Type[SandboxEnvironment]] = {}


@dataclass(frozen=True)
class ExecResult(Generic[T]):
    success: bool
    returncode: int
    stdout: T
    stderr: T


class OutputLimitExceededError(Exception):
    def __init__(self, limit_str: str, truncated_output: Optional[str]) -> None:
        super().__init__(limit_str)
        self.limit_str, self.truncated_output = limit_str, truncated_output


class SandboxEnvironment(abc.ABC):
    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: Dict[str, str]) -> Dict[str, SandboxEnvironment]:
        return {}

    @classmethod
    @abc.abstractmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: Dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        ...

    @abc.abstractmethod
    async def exec(
        self,
        cmd: List[str],
        input: Union[str, bytes, None] = None,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        user: Optional[str] = None,
        timeout: Optional[int] = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        ...

    @abc.abstractmethod
    async def write_file(self, file: str, contents: Union[str, bytes]) -> None:
        ...

    @abc.abstractmethod
    async def read_file(self, file: str, text: bool = True) -> Any:
        ...


C = TypeVar("C", bound=Type[SandboxEnvironment])


def sandboxenv(name: str) -> Callable[[C], C]:
    def register(cls: C) -> C:
        registered[name] = cls
        return cls

    return register
