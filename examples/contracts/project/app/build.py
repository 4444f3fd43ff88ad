"""Builds app.txt of main.txt and the version that the root has."""
import pathlib

version = pathlib.Path("../VERSION").read_text().strip()
text = pathlib.Path("main.txt").read_text()
pathlib.Path("app.txt").write_text(f"{version}: {text}")
print("built app.txt")
