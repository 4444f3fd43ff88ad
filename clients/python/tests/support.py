"""What the tests share: a state directory of their own, and stand-ins for the command."""

import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]
LEADERBOARD = ROOT / "examples/leaderboard"


class Engine(unittest.TestCase):
    """Tests of the real command, in an empty directory. No container may be left after any of them."""

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory, self.state = Path(temporary.name) / "work", Path(temporary.name) / "state"
        self.directory.mkdir()
        environment = mock.patch.dict(os.environ, SANDBOX_STATE_DIR=str(self.state), SANDBOX_POOL_SIZE="none")
        environment.start()
        self.addCleanup(environment.stop)
        before = os.getcwd()
        os.chdir(self.directory)
        self.addCleanup(os.chdir, before)

    def tearDown(self) -> None:
        label = f"label=org.evalbox.state-dir={self.state}"
        command = ["docker", "ps", "-aq", "--filter", label]
        end = time.monotonic() + 20  # the engine removes them by itself
        while subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout:
            self.assertLess(time.monotonic(), end, "containers are left")
            time.sleep(0.05)

    def write(self, name: str, text: str) -> str:
        (self.directory / name).write_text(text)
        return name


def stand_in(case: unittest.TestCase, script: str) -> None:
    """Puts a shell script in place of the command."""
    temporary = tempfile.TemporaryDirectory()
    case.addCleanup(temporary.cleanup)
    path = Path(temporary.name) / "sandbox"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    patch = mock.patch.dict(os.environ, EVALBOX_SANDBOX=str(path))
    patch.start()
    case.addCleanup(patch.stop)
