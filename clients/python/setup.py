"""The version is that of the release, which the build gives as EVALBOX_VERSION; pyproject.toml has the rest."""

import os
import re

from setuptools import setup


def version(text: str) -> str:
    """Writes a version of git describe as one of Python: v1.2.3-4-gabc becomes 1.2.3+4.gabc."""
    release = re.match(r"v?(\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?)(-|$)", text)
    number, rest = (release.group(1), text[release.end() :]) if release else ("0.0.0", text)
    return number + ("+" + re.sub("[^A-Za-z0-9]+", ".", rest).strip(".") if rest else "")


setup(version=version(os.environ.get("EVALBOX_VERSION", "")))
