"""Faults of the command, which only a stand-in has; command lines; and no command at all."""

import asyncio
import datetime
import inspect
import json
import os
import pathlib
import resource
import signal
import time
import unittest
from typing import Any, List
from unittest import mock

from support import stand_in

import evalbox
from evalbox import _calls, aio


def event(**fields: Any) -> str:
    return json.dumps({"schema": "evalbox/run-event/v1", "at": "", **fields})


class CommandLines(unittest.TestCase):
    def line(self, *args: Any, **named: Any) -> List[str]:
        return list(_calls.run(*args, **named).argv)[2:]

    def test_run(self) -> None:
        self.assertEqual(self.line("a.py", "-x", 1), ["a.py", "-x", "1"])
        self.assertEqual(self.line(["echo", "-n"], "x"), ["--", "echo", "-n", "x"])
        self.assertEqual(self.line(pathlib.Path("-a.py")), ["./-a.py"])
        self.assertEqual(self.line("-", stdin="x"), ["-"])
        self.assertEqual(self.line("a.py", stdin=""), ["--interactive", "a.py"])

    def test_values(self) -> None:
        for value, want in {1.5: "1.5s", 3600: "3600s", "2h": "2h", 0.00001: "0.00001s"}.items():
            self.assertEqual(self.line("a.py", timeout=value), [f"--timeout={want}", "a.py"])
        self.assertEqual(self.line("a.py", timeout=datetime.timedelta(minutes=1))[0], "--timeout=60s")
        env = {"A": "1", "B": "x=y z"}
        self.assertEqual(self.line("a.py", env=env), ["--env=A=1", "--env=B=x=y z", "a.py"])
        self.assertEqual(self.line("a.py", mounts={"h.py": "h.py"})[0], "--mount=h.py:h.py")
        for hosts in ("a.org", ["a.org"]):
            self.assertEqual(self.line("a.py", allow_host=hosts), ["--allow-host=a.org", "a.py"])
        options = {
            "pids_limit": 5,
            "keep": True,
            "raw": False,
            "label": {"a": "b"},
            "ulimit": ["x=1", "y=2"],
            "host": None,
        }
        want = ["--pids-limit=5", "--keep", "--raw=false", "--label=a=b", "--ulimit=x=1", "--ulimit=y=2"]
        self.assertEqual(self.line("a.py", options=options)[:-1], want)

    def test_others(self) -> None:
        call = _calls.batch(["a.py"], task="t.yaml", seeds=range(3), options={"budget": "8h"})
        self.assertEqual(list(call.argv), "batch --json-lines --task=t.yaml --seeds=0,1,2 --budget=8h a.py".split())
        self.assertEqual(_calls.exec_contract({"a": 1}).argv[-1], "-")
        self.assertEqual(_calls.exec_contract({"a": 1}).stdin, b'{"a": 1}')

    def test_signatures(self) -> None:
        for name in ("run", "start", "batch", "evaluate", "rank", "exec_contract"):
            sync, coroutine = getattr(evalbox, name), getattr(aio, name)
            self.assertEqual(inspect.signature(sync), inspect.signature(coroutine), name)
            self.assertTrue(sync.__doc__)
        self.assertTrue(inspect.iscoroutinefunction(aio.run))
        self.assertEqual(inspect.signature(evalbox.run).return_annotation, "Result")


class Faults(unittest.TestCase):
    def fails(self, script: str) -> evalbox.SandboxError:
        stand_in(self, script)
        with self.assertRaises(evalbox.SandboxError) as raised:
            evalbox.run("a.py")
        with self.assertRaises(evalbox.SandboxError) as again:
            asyncio.run(aio.run("a.py"))
        self.assertEqual(str(raised.exception), str(again.exception))
        self.assertEqual(raised.exception.code, again.exception.code)
        return raised.exception

    def test_garbage(self) -> None:
        error = self.fails("trap '' TERM; echo 'usage: sandbox [-x]'; sleep 0.2")
        self.assertIn("'usage: sandbox [-x]', which is not a JSON object\nhint: see whether /", str(error))

    def test_no_end(self) -> None:
        error = self.fails(
            f"echo '{event(event='started')}'; echo 'sandbox: broken' >&2; echo 'sandbox: hint: repair it' >&2; exit 3"
        )
        self.assertEqual(error.problems, ("the command ended with exit code 3 without an answer", "broken"))
        self.assertEqual((error.hints, error.code), (("repair it",), 3))

    def test_killed(self) -> None:
        self.assertIn("was killed by signal 9 without an answer", str(self.fails("kill -9 $$")))

    def test_huge_line(self) -> None:
        with mock.patch.object(_calls, "MAX_LINE", 1 << 20):
            error = self.fails("trap '' PIPE; exec head -c 3000000 /dev/zero")
        self.assertIn("a line of more than 1 MiB", str(error))

    def test_long_line(self) -> None:
        text = "x" * 5_000_000
        stand_in(
            self,
            f"printf '%s' '{event(event='output', stream='stdout', text='')[:-2]}'; head -c 5000000 /dev/zero | tr '\\0' x; echo '\"}}'",
        )
        with self.assertRaisesRegex(evalbox.SandboxError, "without an answer"), evalbox.start("a.py") as run:
            self.assertEqual(next(run).text, text)
            run.result()

    def test_full_stderr(self) -> None:
        error = self.fails("yes 'sandbox: warning' | head -n 200000 >&2; exit 1")
        self.assertEqual(error.problems[-1], "warning")

    def test_memory_is_bounded(self) -> None:
        line = event(event="output", stream="stdout", text="y" * 16_000)
        stand_in(self, f"yes '{line}' | head -n 20000")  # 320 MB
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with self.assertRaises(evalbox.SandboxError):
            evalbox.run("a.py", on_output=lambda stream, text: None)
        self.assertLess(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 50_000)  # KiB

    def test_left_behind(self) -> None:
        """A process that holds the streams of the command does not hold us up."""
        begun = time.monotonic()
        self.fails("sleep 30 >/dev/null & exec >&-; sleep 0.2; exit 1")
        self.assertLess(time.monotonic() - begun, 10)

    def test_exception_of_the_callback(self) -> None:
        stand_in(
            self,
            f"echo '{event(event='output', stream='stdout', text='x')}'; trap 'exit 1' TERM; while :; do sleep 0.05; done",
        )

        def refuse(stream: str, text: str) -> None:
            raise KeyError(text)

        with self.assertRaises(KeyError):
            evalbox.run("a.py", on_output=refuse)
        with self.assertRaises(KeyError):
            asyncio.run(aio.run("a.py", on_output=refuse))

    def test_deaf_command(self) -> None:
        """Ctrl-C again and again ends a command that does not listen."""
        stand_in(self, f"trap '' TERM; echo '{event(event='started')}'; while :; do sleep 0.05; done")
        previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with self.assertRaises(KeyboardInterrupt), evalbox.start("a.py") as run:
                self.assertEqual(next(run).event, "started")
                signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
                run.result()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)

        async def cancelled() -> None:
            run = aio.start("a.py")
            self.assertEqual((await run.__anext__()).event, "started")
            task = asyncio.ensure_future(run.result())
            for _ in range(4):
                await asyncio.sleep(0.3)
                task.cancel()
            await task

        with self.assertRaises(asyncio.CancelledError):
            asyncio.run(cancelled())
        with self.assertRaises(ChildProcessError):  # no zombie
            os.waitpid(-1, os.WNOHANG)

    def test_nothing_stays_half_done(self) -> None:
        """However often a task is cancelled."""
        done: List[int] = []

        async def work() -> None:
            await asyncio.sleep(0.1)
            done.append(1)

        async def cancelled() -> None:
            task = asyncio.ensure_future(aio._to_end(work()))
            for _ in range(3):
                await asyncio.sleep(0)
                task.cancel()
            await task

        with self.assertRaises(asyncio.CancelledError):
            asyncio.run(cancelled())
        self.assertEqual(done, [1])

    def test_forgotten_run(self) -> None:
        """A loop that is left early asks the command to end."""
        stand_in(
            self, f"trap 'touch $0.ended; exit 1' TERM; echo '{event(event='started')}'; while :; do sleep 0.05; done"
        )
        ended = pathlib.Path(os.environ["EVALBOX_SANDBOX"] + ".ended")

        async def forgotten() -> None:
            async for _ in aio.start("a.py"):
                break
            end = time.monotonic() + 10
            while not ended.exists() and time.monotonic() < end:
                await asyncio.sleep(0.02)

        asyncio.run(forgotten())
        self.assertTrue(ended.exists())

    def test_no_command(self) -> None:
        with mock.patch.dict(os.environ, PATH="/nowhere"):
            for call in (lambda: evalbox.run("a.py"), lambda: asyncio.run(aio.run("a.py"))):
                with self.assertRaisesRegex(
                    evalbox.SandboxNotFound, "^there is no command 'sandbox'\nhint: install it"
                ):
                    call()
        stand_in(self, "")
        os.chmod(os.environ["EVALBOX_SANDBOX"], 0o644)
        with self.assertRaisesRegex(evalbox.SandboxError, "cannot be started: Permission denied"):
            evalbox.run("a.py")


if __name__ == "__main__":
    unittest.main()
