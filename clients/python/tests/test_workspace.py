"""Workspaces with the real command, also against hostile files."""

import asyncio
import dataclasses
import os
import pathlib
import unittest
from unittest import mock

from support import Engine

import evalbox
from evalbox import aio


class Workspaces(Engine):
    def test_files_go_on(self) -> None:
        with evalbox.Workspace(timeout=60, env={"A": "1"}) as box:
            box.write_file("src/main.py", "import os; print(os.environ['A'], os.environ['B'], input())")
            self.assertEqual(box.exec(["python3", "src/main.py"], env={"B": "2"}, stdin="3").stdout, "1 2 3\n")
            result = box.exec(["sh", "-c", "printf x > new; chmod 0 src/main.py; mkdir -m 0 empty; exit 7"])
            self.assertEqual((result.exit_code, result.ok), (7, False))
            self.assertEqual([o.path for o in result.outputs], ["new", "src/main.py"])
            self.assertEqual(result.outputs[0].file.read_text(), "x")
            self.assertNotIn(" in /", str(result))
            self.assertEqual(box.read_file("new"), b"x")
            self.assertEqual(box.read_file("/work/final/files/new"), b"x")
            self.assertIn("os.environ", box.read_text("src/main.py"))
            listed = box.exec(["sh", "-c", "pwd; find . | sort; cat src/main.py >/dev/null"])
            self.assertEqual(listed.stdout, "/work/final/files\n.\n./empty\n./new\n./src\n./src/main.py\n")
            self.assertEqual(box.exec(["pwd"], cwd="src").stdout, "/work/final/files/src\n")
            self.assertEqual(box.exec(["pwd"], cwd="/usr").stdout, "/usr\n")
            self.assertEqual(box.exec(["pwd"], cwd="nowhere").exit_code, 1)
            self.assertEqual(box.exec(["sh", "-c", "rm new; chmod +x src/main.py"]).exit_code, 0)
            self.assertEqual(box.exec(["test", "-x", "src/main.py"]).exit_code, 0)
            with self.assertRaises(FileNotFoundError):
                box.read_file("new")
            kept = box.directory
        self.assertFalse(kept.exists())

    def test_ends(self) -> None:
        with evalbox.Workspace(memory="64m") as box:
            result = box.exec(["sh", "-c", "echo 1 > kept; sleep 60"], timeout=1)
            self.assertEqual((result.timed_out, box.read_text("kept")), (True, "1\n"))
            result = box.exec(["python3", "-c", "open('big', 'w'); b'x' * (1 << 30)"])
            self.assertIn((result.status, result.exit_code), [("out_of_memory", 137), ("exited", 1)])
            self.assertEqual(box.read_text("big"), "")
            self.assertEqual(box.exec(["no-such-command"]).exit_code, 127)
            self.assertEqual(box.exec(["/etc/passwd"]).exit_code, 126)
            result = box.exec(["sh", "-c", "rm -rf /work/final/files"])
            self.assertEqual((result.exit_code, box.read_text("kept")), (0, "1\n"))
        with evalbox.Workspace(options={"disk": "10m"}) as box:
            box.write_file("large", b"x" * (20 << 20))
            self.assertNotEqual(box.exec(["touch", "new"]).exit_code, 0)
            self.assertEqual(len(box.read_file("large")), 20 << 20)

    def test_misuse(self) -> None:
        for setting in ("memry", "input", "final", "program"):
            with self.assertRaisesRegex(TypeError, setting):
                evalbox.Workspace(**{setting: "1g"})
        with evalbox.Workspace() as box, self.assertRaisesRegex(TypeError, "give its words"):
            box.exec("ls -l")

    def test_deep_directories(self) -> None:
        with evalbox.Workspace() as box:
            box.exec(
                ["python3", "-c", "import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')\nos.chmod('.', 0)"]
            )
            self.assertEqual(box.exec(["sh", "-c", "find . | wc -l"]).stdout, "1501\n")
            box.exec(
                ["python3", "-c", "import os\nfor _ in range(6000): os.mkdir('d'); os.chdir('d')"], cwd="/work/final"
            )
        self.assertFalse(box.directory.parent.exists())

    def test_container_that_stays(self) -> None:
        """Its processes may change what it left, so nothing of that is taken over, or touched before the end."""
        with evalbox.Workspace() as box:
            box.write_file("a", "1")
            result = box.exec(["true"])
            left = box.directory.parent / "next/files"
            left.mkdir(parents=True)
            left.chmod(0o700)
            box._accept(dataclasses.replace(result, container_left=True))
            self.assertEqual([path.stat().st_mode & 0o777 for path in box.directory.parent.glob("*/files")], [0o700])
            self.assertEqual(box.exec(["cat", "a"]).stdout, "1")
        self.assertFalse(box.directory.parent.exists())

    def test_hostile_links(self) -> None:
        secret = self.directory / "secret"
        secret.write_text("secret")
        script = (
            f"ln -s {secret} file; ln -s {self.directory} dir; mkfifo pipe; ln -s . loop; "
            "ln -s loop/loop deep; ln -s /dev/zero zero; mkdir real; ln -s real inner"
        )
        with evalbox.Workspace() as box:
            self.assertEqual(box.exec(["sh", "-c", script]).exit_code, 0)
            for path in (
                "file",
                "dir/secret",
                "pipe",
                "loop/file",
                "zero",
                "deep",
                "../secret",
                str(secret),
                "/etc/passwd",
            ):
                with self.assertRaises(PermissionError, msg=path) as raised:
                    box.read_file(path)
                self.assertEqual(raised.exception.filename, path)
            for path in ("dir/new", "dir/secret", "loop/new", "inner/new", "../new", "/etc/new"):
                with self.assertRaises(PermissionError, msg=path):
                    box.write_file(path, "evil")
            box.write_file("file", "mine")  # in place of the link
            self.assertEqual((box.read_text("file"), secret.read_text()), ("mine", "secret"))
            box.write_file("zero", "mine")
            self.assertEqual(box.exec(["sh", "-c", "cat file zero; test -L dir"]).stdout, "minemine")
            self.assertEqual(sorted(os.listdir(self.directory)), ["secret"])

    def test_wrong_files(self) -> None:
        with evalbox.Workspace() as box:
            box.write_file("a/b/c", b"\xff" * 100)
            for path, kind in (
                ("a", IsADirectoryError),
                (".", IsADirectoryError),
                ("x", FileNotFoundError),
                ("x/y", FileNotFoundError),
            ):
                with self.assertRaises(kind, msg=path):
                    box.read_file(path)
            with self.assertRaises(IsADirectoryError):
                box.write_file("a/b", "")
            with self.assertRaises(NotADirectoryError):
                box.write_file("a/b/c/d", "")
            with self.assertRaises(UnicodeDecodeError):
                box.read_text("a/b/c")
            with self.assertRaisesRegex(OSError, "has 100 bytes, more than the limit of 99: 'a/b/c'"):
                box.read_file("a/b/c", limit=99)
            self.assertEqual(len(box.read_file("a/b/c", limit=100)), 100)

    def test_failure_of_the_sandbox(self) -> None:
        with evalbox.Workspace() as box:
            box.write_file("a", "1")
            with mock.patch.dict(os.environ, DOCKER_HOST="unix:///nope"), self.assertRaises(evalbox.SandboxError):
                box.exec(["true"])
            self.assertEqual(box.read_text("a"), "1")

    def test_async(self) -> None:
        async def all_of_it() -> None:
            async with aio.Workspace() as box:
                await box.write_file("n", "0")
                step = ["sh", "-c", "echo $(($(cat n) + 1)) > n"]
                await asyncio.gather(*(box.exec(step) for _ in range(3)))
                self.assertEqual(await box.read_text("n"), "3\n")
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(box.exec(["sleep", "60"]), 1.5)
                self.assertEqual((await box.exec(["cat", "n"])).stdout, "3\n")
            self.assertFalse(pathlib.Path(box.directory).exists())

        asyncio.run(all_of_it())


if __name__ == "__main__":
    unittest.main()
