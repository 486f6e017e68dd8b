"""The container files name what exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

TOP = Path(__file__).parents[2]
OPTIONS = {"UPSTREAM", "LISTEN", "SHADOW", "HOME"}  # options of `pgveil serve`, as variables


def test_the_image_holds_every_package() -> None:
    packages = set(tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    copied = {line.split()[1] for line in (TOP / "Dockerfile").read_text().splitlines() if re.match(r"COPY \w+ ", line)}
    admitted = {line[1:] for line in (TOP / ".dockerignore").read_text().splitlines() if re.fullmatch(r"!\w+", line)}
    assert packages == copied
    assert packages <= admitted


def test_every_file_that_the_image_copies_is_admitted_and_exists() -> None:
    admitted = {line[1:] for line in (TOP / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in (TOP / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            for name in line.split()[1:-1]:
                assert name in admitted
                assert (TOP / name).exists()


def test_variables_are_options_of_the_program() -> None:
    text = (TOP / "docker-compose.yml").read_text() + (TOP / "Dockerfile").read_text()
    assert set(re.findall(r"\bPGVEIL_([A-Z]+)[:=] ?\S", text)) - {"PORT"} == OPTIONS
