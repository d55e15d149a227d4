"""What the page gets is what Python has: number by number, through the page's own unpacking."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets.report.page import _STATIC, pack, smaller, thousandths
from tests.javascript import asking

# Answers each line of JSON with what the page makes of it; bytes are in hexadecimal.
DRIVER = f"""
import {{ createInterface }} from "node:readline";
import {{ fromLogLira, unpack }} from {json.dumps((_STATIC / "unpack.js").as_uri())};
const hex = (value) => Buffer.from(value).toString("hex");
for await (const line of createInterface({{ input: process.stdin }})) {{
  const {{ what, given }} = JSON.parse(line);
  const found = what === "text" ? await unpack(given)
    : new Uint8Array(fromLogLira(Uint8Array.from(Buffer.from(given, "hex"))).buffer);
  console.log(JSON.stringify(found, (_, v) => (v instanceof Uint8Array ? hex(v) : v)));
}}
"""


@pytest.fixture(scope="module")
def ask(node, tmp_path_factory):
    driver = tmp_path_factory.mktemp("packing") / "driver.mjs"
    driver.write_text(DRIVER)
    with asking(node, driver) as ask:
        yield ask


def on_the_page(ask, log_lira):
    """What the page makes of log-LiRA."""
    return np.frombuffer(
        bytes.fromhex(ask("log-LiRA", given=thousandths(log_lira).tobytes().hex()))
    )


LOG_LIRA = st.floats(-1e5, 1e5)


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(LOG_LIRA, min_size=1, max_size=30),
    eta=st.integers(-20_000, 100_000),
)
def test_every_eta_of_three_decimals_judges_alike(ask, values, eta):
    gaps = np.array([*values, eta / 1000, np.nextafter(eta / 1000, -np.inf)])
    assert ((on_the_page(ask, gaps) >= eta / 1000) == (gaps >= eta / 1000)).all()


def test_log_lira_that_is_too_large_stays_on_its_side(ask):
    assert on_the_page(ask, np.array([1e12, -np.inf, 4.0])).tolist() == [2e6, -2e6, 4.0]


def test_what_is_packed_is_letters_and_digits_alone(ask):
    content = {
        "title": "</script>\u2028 ü",
        "none": None,
        "more": [{"a": b"\x00\xff"}, b"", 0.1],
    }
    text = pack(content)
    assert set(text) <= set(base64.b64encode(bytes(range(256)) * 99).decode()) | set(
        "+/="
    )
    assert ask("text", given=text) == {**content, "more": [{"a": "00ff"}, "", 0.1]}


def test_pictures_are_made_smaller_by_their_mean():
    image = np.zeros((128, 96, 1), np.uint8)
    image[:2, :2] = [[[10], [20]], [[30], [40]]]
    small = smaller(image)
    assert small.shape == (64, 48, 1)
    assert small[0, 0, 0] == 25
    assert smaller(small) is small
