"""The provider of docs/guides/frameworks.md has the interface of the framework, and keeps its rules."""

import asyncio
import os
import pathlib
import subprocess
import sys
from typing import Any

from support import ROOT, Engine

import evalbox

STANDINS = pathlib.Path(__file__).parent / "standins"
sys.path.insert(0, str(STANDINS))

from inspect_ai import util  # noqa: E402


class Provider(Engine):
    def setUp(self) -> None:
        super().setUp()
        page = (ROOT / "docs/guides/frameworks.md").read_text()
        self.program = page.split("\n```python\n")[1].split("\n```\n")[0] + "\n"

    def test_types(self) -> None:
        self.write("provider.py", self.program)
        package = pathlib.Path(evalbox.__file__).parent.parent
        checked = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--python-version=3.9", "provider.py"],
            env={**os.environ, "MYPYPATH": f"{package}:{STANDINS}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        self.assertEqual(checked.returncode, 0, checked.stdout)

    def test_rules(self) -> None:
        exec(compile(self.program, "provider.py", "exec"), {"__name__": "provider"})
        asyncio.run(self.rules(util.registered["evalbox"]))

    async def rules(self, kind: Any) -> None:
        environments = await kind.sample_init("task", None, {})
        box = environments["default"]
        try:
            await box.write_file("dir/a b", "ä\r\n")
            self.assertEqual(await box.read_file("dir/a b"), "ä\r\n")
            self.assertEqual(await box.read_file("dir/a b", text=False), "ä\r\n".encode())
            done = await box.exec(["sh", "-c", "cat; echo $X; exit 3"], input="in\n", cwd="dir", env={"X": "env"})
            self.assertEqual(done, util.ExecResult(False, 3, "in\nenv\n", ""))
            self.assertEqual(await box.exec(["true"]), util.ExecResult(True, 0, "", ""))
            for command, error in (
                (["sleep", "60"], TimeoutError),
                (["/etc/passwd"], PermissionError),
                (["head", "-c", "2000000", "/dev/zero"], util.OutputLimitExceededError),
            ):
                with self.assertRaises(error, msg=command):
                    await box.exec(command, timeout=2)
            with self.assertRaises(PermissionError):
                await box.exec(["true"], user="root")
            for path, error in (("nope", FileNotFoundError), ("dir", IsADirectoryError), ("/etc", PermissionError)):
                with self.assertRaises(error, msg=path):
                    await box.read_file(path)
            with self.assertRaises(util.OutputLimitExceededError):
                await box.exec(["truncate", "-s", "101M", "large"])
                await box.read_file("large")
        finally:
            await kind.sample_cleanup("task", None, environments, False)
        self.assertFalse(box.box.directory.exists())
