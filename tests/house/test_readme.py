"""What the README names is there; tests/house/test_readers_path.py runs its lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def test_the_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"make ([a-z]+)", "".join(blocks("sh"))):
        assert f"\n{command}:" in makefile


def test_what_it_links_to_and_shows_is_there():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_its_picture_moves_and_has_a_still():
    shown = dict(re.findall(r'(src|srcset)="([^"]+)"', README))
    moving, still = ROOT / shown["src"], ROOT / shown["srcset"]
    assert max(moving.stat().st_size, still.stat().st_size) < 2_000_000
    with Image.open(moving) as frames, Image.open(still) as one:
        assert frames.n_frames > 20
        assert frames.size[0] / frames.size[1] == pytest.approx(one.size[0] / one.size[1], rel=0.05)
