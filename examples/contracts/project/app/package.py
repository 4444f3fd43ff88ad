"""Packs what another directory offers into the output directory of the root."""
import json
import pathlib
import sys

deps, out = pathlib.Path(sys.argv[1]), pathlib.Path("/repo/out")
names = sorted(path.name for path in deps.iterdir())
(out / "packed.txt").write_text("".join((deps / name).read_text() for name in names))
(out / "manifest.json").write_text(json.dumps({"files": names}))
