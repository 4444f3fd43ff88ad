"""evalbox runs one untrusted program in one fresh container, and reports exactly what happened.

    import evalbox

    result = evalbox.run("train.py", "--epochs", "3", input="data", timeout=600)
    print(result)                  # exited 0 · score 0.9722 · 1.42s · …
    print(result.ok, result.score, result.stdout, [o.file for o in result.outputs])

`evalbox.aio` has the same functions as coroutines. This package drives the command `sandbox`.
"""

from importlib.metadata import PackageNotFoundError, version

from . import _calls, aio
from ._calls import Event
from ._errors import SandboxError, SandboxNotFound
from ._model import Evaluation, Leaderboard, Outcome, Output, Result
from ._sync import Run, starts, waits
from ._workspace import Workspace

try:
    __version__ = version("evalbox")
except PackageNotFoundError:  # the sources, which nobody installed
    __version__ = "0.0.0"

run = waits(_calls.run)
start = starts(_calls.run)
batch = starts(_calls.batch)
evaluate = waits(_calls.evaluate)
rank = waits(_calls.rank)
exec_contract = waits(_calls.exec_contract)

__all__ = [
    "Evaluation",
    "Event",
    "Leaderboard",
    "Outcome",
    "Output",
    "Result",
    "Run",
    "SandboxError",
    "SandboxNotFound",
    "Workspace",
    "aio",
    "batch",
    "evaluate",
    "exec_contract",
    "rank",
    "run",
    "start",
]
