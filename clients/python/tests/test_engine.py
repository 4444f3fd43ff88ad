"""The client with the real command and the real engine."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import unittest
from typing import List, Tuple
from unittest import mock

from support import LEADERBOARD, ROOT, Engine

import evalbox
from evalbox import aio

TASK = LEADERBOARD / "task.yaml"
SOLUTIONS = LEADERBOARD / "solutions"
CONTRACTS = ROOT / "examples/contracts"
# It says that it has begun, and stays.
STAY = ["sh", "-c", "echo begun; sleep 100"]


class Runs(Engine):
    def test_run(self) -> None:
        script = self.write(
            "train.py",
            "import os, pathlib, sys\n"
            "print(sys.argv[1:], os.environ['SEED'], open('input/a').read())\n"
            "pathlib.Path('final/out.txt').write_text('kept')\n"
            "os.symlink('/etc/passwd', 'final/link')\n"
            "print('Final Validation Performance: 0.5')\n",
        )
        os.mkdir("data")
        self.write("data/a", "input")
        result = evalbox.run(
            script, "--lr", "0.1", input="data", final="out", memory="256m", cpus=1, timeout=30, env={"SEED": "7"}
        )
        self.assertEqual(result.stdout.splitlines()[0], "['--lr', '0.1'] 7 input", result.stderr)
        self.assertTrue(result.ok and result.conclusive)
        self.assertEqual((result.score, result.exit_code, result.status), (0.5, 0, "exited"))
        self.assertEqual(result.enforced.memory_bytes, 256 << 20)
        self.assertEqual([o.path for o in result.outputs], ["out.txt"])
        self.assertEqual(result.outputs[0].file, self.directory / "out/out.txt")
        self.assertEqual(result.outputs[0].file.read_text(), "kept")
        self.assertEqual(result.outputs_skipped[0].kind, "symlink")
        self.assertRegex(
            str(result), rf"^exited 0 · score 0\.5 · .* · 1 output in out \(1 left out\) · id {result.id}$"
        )
        shown = subprocess.run(["sandbox", "show", "--json", result.id], stdout=subprocess.PIPE, check=True)
        self.assertEqual(json.loads(shown.stdout), result.document)

    def test_record_has_the_outputs(self) -> None:
        result = evalbox.run(["sh", "-c", "printf x > final/a; printf y > \"$(printf 'final/b\\377')\""])
        self.assertEqual([o.file.read_bytes() for o in result.outputs], [b"x", b"y"])
        assert result.final
        self.assertEqual(result.final, self.state / "runs" / result.id / "final")

    def test_failing_program(self) -> None:
        result = evalbox.run("-", stdin="raise ValueError('no')")
        self.assertFalse(result.ok)
        self.assertEqual((result.exit_code, result.fault), (1, "program"))
        self.assertIn("ValueError: no", result.error_traceback or "")
        self.assertIn("ValueError: no", result._repr_html_())

    def test_timeout(self) -> None:
        result = evalbox.run(["sleep", "100"], timeout=0.5)
        self.assertTrue(result.timed_out)
        self.assertEqual(result.status, "timed_out")

    def test_refusals(self) -> None:
        for named, problem, code in (
            ({"options": {"memry": 1}}, "run: unknown flag: --memry\nhint: did you mean --memory?", 2),
            ({"timeout": "soon"}, '--timeout "soon": must be a duration', 2),
            ({"memory": "9999g"}, "memory 9999GiB: ", 125),
            ({"allow_host": ["example.org"]}, "network level", 125),
        ):
            with self.assertRaises(evalbox.SandboxError) as raised:
                evalbox.run("-", stdin="pass", **named)  # type: ignore[arg-type]
            self.assertIn(problem, str(raised.exception))
            self.assertEqual(raised.exception.code, code)
            self.assertTrue(raised.exception.hints)
        with self.assertRaisesRegex(evalbox.SandboxError, 'script "nope.py": does not exist'):
            evalbox.run("nope.py")

    def test_no_engine(self) -> None:
        with mock.patch.dict(os.environ, DOCKER_HOST="unix:///nope"):
            for call in (
                lambda: evalbox.run("-", stdin="pass"),
                lambda: evalbox.evaluate(SOLUTIONS / "svm.py", task=TASK),
                lambda: evalbox.batch(SOLUTIONS, task=TASK).result(),
                lambda: evalbox.exec_contract(CONTRACTS / "timeout.yaml"),
            ):
                with self.assertRaisesRegex(
                    evalbox.SandboxError, "nothing answers at unix:///nope\nhint: start the engine"
                ):
                    call()

    def test_stdin(self) -> None:
        text = "ä" * 300_000
        result = evalbox.run(["wc", "-c"], stdin=text)
        self.assertEqual(result.stdout.strip(), "600000")
        self.assertEqual(evalbox.run(["cat"]).stdout, "")

    def test_output_streams_in_order(self) -> None:
        script = self.write(
            "p.py",
            "import sys, time\n"
            "for i in range(3):\n"
            "    print(i, flush=True); time.sleep(0.3)\n"
            "sys.stderr.buffer.write(b'\\xff')\n",
        )
        seen: List[Tuple[str, str, float]] = []
        result = evalbox.run(script, on_output=lambda *piece: seen.append((*piece, time.monotonic())))
        texts = {name: "".join(text for stream, text, _ in seen if stream == name) for name in ("stdout", "stderr")}
        self.assertEqual(texts, {"stdout": "0\n1\n2\n", "stderr": "\ufffd"})
        self.assertGreater(seen[-1][2] - seen[0][2], 0.4, "the output came all at once")
        self.assertEqual(result.stdout, "0\n1\n2\n")

    def test_much_output(self) -> None:
        sizes: List[int] = []
        result = evalbox.run(["head", "-c", "30000000", "/dev/zero"], on_output=lambda _, text: sizes.append(len(text)))
        self.assertEqual(sum(sizes), 30_000_000)
        self.assertEqual((result.stdout_bytes, result.stdout_truncated), (30_000_000, True))
        self.assertLess(len(result.stdout), 2_000_000)

    def test_events(self) -> None:
        with evalbox.start(STAY) as run:
            events = []
            for event in run:
                events.append(event.event)
                if event.event == "output":
                    self.assertEqual((event.stream, event.text, event.data), ("stdout", "begun\n", b"begun\n"))
                    run.stop()
            result = run.result()
        self.assertEqual(events, ["started", "output", "ended"])
        self.assertEqual((result.status, result.stdout), ("canceled", "begun\n"))
        self.assertIs(run.result(), result)

    def test_end_of_with_ends_the_run(self) -> None:
        with evalbox.start(STAY, name="ended") as run:
            for event in run:
                if event.event == "output":
                    break
        self.assertEqual(self.status("ended"), "canceled")

    def test_ctrl_c(self) -> None:
        # The tests may have been started in the background, where SIGINT is ignored.
        program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        program += "import evalbox; evalbox.run(%r, name='ctrl-c', on_output=lambda s, t: print(t, flush=True))" % STAY
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with process:
            assert process.stdout and process.stderr
            self.assertEqual(process.stdout.readline(), b"begun\n")
            process.send_signal(signal.SIGINT)
            self.assertIn(b"KeyboardInterrupt", process.stderr.read())
        self.assertEqual(self.status("ctrl-c"), "canceled")

    def status(self, name: str) -> str:
        command = ["sandbox", "ls", "--name", name, "--format", "{{.Status}}"]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout.strip()

    def test_async(self) -> None:
        async def all_of_it() -> None:
            results = await asyncio.gather(*(aio.run(["echo", str(i)]) for i in range(3)))
            self.assertEqual([r.stdout for r in results], ["0\n", "1\n", "2\n"])
            async with aio.start(STAY) as run:
                events = []
                async for event in run:
                    events.append(event.event)
                    if event.event == "output":
                        run.stop()
                self.assertEqual(events, ["started", "output", "ended"])
                self.assertEqual((await run.result()).status, "canceled")
            with self.assertRaisesRegex(evalbox.SandboxError, "does not exist"):
                await aio.run("nope.py")

        asyncio.run(all_of_it())

    def test_async_cancellation(self) -> None:
        async def cancelled() -> None:
            begun = asyncio.Event()
            task = asyncio.ensure_future(aio.run(STAY, name="task", on_output=lambda *_: begun.set()))
            await asyncio.wait_for(begun.wait(), 30)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(self.status("task"), "canceled")
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(aio.run(["sleep", "100"], name="early"), 0.05)  # before the program starts

        asyncio.run(cancelled())


class Evaluations(Engine):
    grading = {"grader": LEADERBOARD / "grader.py", "answers": LEADERBOARD / "answers"}

    def test_evaluate(self) -> None:
        row = evalbox.evaluate(SOLUTIONS / "tree.py", task=TASK, output="work", seed=3, **self.grading)
        self.assertTrue(row.ok, row)
        self.assertEqual((row.name, row.seed, row.best_score), ("tree", 3, row.graded_score))
        self.assertRegex(str(row), r"^tree · exited 0 · graded 0\.\d+ · score 0\.\d+ · seed 3 · [\d.]+s$")
        row = evalbox.evaluate(SOLUTIONS / "crash.py", task=TASK, output="work2")
        self.assertEqual((row.ok, row.exit_code, row.why), (False, 1, "KeyError: 'malignant'"))

    def test_batch(self) -> None:
        scripts = [SOLUTIONS / name for name in ("crash.py", "bayes.py", "masked.py")]
        with evalbox.batch(scripts, task=TASK, jobs=2, **self.grading) as batch:
            first = [row.name for row in batch]
            self.assertEqual(batch.result(), 3)
        self.assertEqual(sorted(first), ["bayes", "crash", "masked"])
        again = [row.name for row in evalbox.batch(scripts, task=TASK, jobs=2, **self.grading)]
        self.assertEqual(again, ["crash", "bayes", "masked"])
        board = evalbox.rank()
        self.assertEqual([e.name for e in board.evaluations], ["bayes", "masked", "crash"])
        self.assertEqual(board.ranks, (1, 2, 0))
        self.assertIn("1     bayes", str(board))

    def test_batch_that_ends_early(self) -> None:
        rows, options = [], {"budget": "1s"}
        with self.assertRaisesRegex(evalbox.SandboxError, "^the time budget is used up$") as raised:
            for row in evalbox.batch([SOLUTIONS / "hang.py", SOLUTIONS / "svm.py"], task=TASK, options=options):
                rows.append(row.name)
        self.assertEqual((sorted(rows), raised.exception.code), (["hang", "svm"], 124))

    def test_async_batch(self) -> None:
        async def rows() -> List[str]:
            return [row.name async for row in aio.batch(SOLUTIONS / "crash.py", task=TASK)]

        self.assertEqual(asyncio.run(rows()), ["crash"])


class Contracts(Engine):
    def test_outcomes(self) -> None:
        outcome = evalbox.exec_contract(CONTRACTS / "analysis.yaml", root=CONTRACTS / "project")
        self.assertTrue(outcome.ok, outcome.error)
        outcome = asyncio.run(aio.exec_contract(CONTRACTS / "mismatch.yaml", root=CONTRACTS / "project"))
        self.assertEqual((outcome.success, outcome.differences[0].what), (False, "stdout"))
        outcome = evalbox.exec_contract(CONTRACTS / "refused-tool.yaml")
        self.assertEqual((outcome.status, outcome.started, outcome.violations[0].code), ("refused", False, "IV-01"))

    def test_contract_of_a_program(self) -> None:
        inputs = {"command": "python3", "arguments": ["-c", "print(6 * 7)"]}
        outcome = evalbox.exec_contract(
            {"tool_id": "TL-010", "inputs": inputs, "outputs": {"stdout": {"expected": "42"}}}
        )
        self.assertTrue(outcome.ok, outcome)


if __name__ == "__main__":
    unittest.main()
