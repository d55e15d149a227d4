"""What the page gets is what Python has: number by number, through the page's own unpacking."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets.report.page import _STATIC, pack, smaller, thousandths
from memowidgets.widgets.frontend import page_script

UNPACK = Path(sys.modules["memowidgets.report.page"].__file__).parent / "static" / "unpack.js"
# Answers each line of JSON with the numbers that the page makes of it, as hexadecimal bytes.
DRIVER = f"""
import {{ createInterface }} from "node:readline";
import {{ fromLogLira, unpack }} from {json.dumps(UNPACK.as_uri())};
for await (const line of createInterface({{ input: process.stdin }})) {{
  const {{ bytes, text }} = JSON.parse(line);
  if (text !== undefined) {{
    const whole = await unpack(text);
    const hex = (value) => Buffer.from(value).toString("hex");
    console.log(JSON.stringify(whole, (_, v) => (v instanceof Uint8Array ? hex(v) : v)));
    continue;
  }}
  const found = fromLogLira(Uint8Array.from(Buffer.from(bytes, "base64")));
  console.log(JSON.stringify(Buffer.from(found.buffer).toString("hex")));
}}
"""


@pytest.fixture(scope="module")
def ask(node):
    with subprocess.Popen(
        [node, "--input-type=module", "-e", DRIVER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip

        def asked(**question):
            if "bytes" in question:
                question["bytes"] = base64.b64encode(question["bytes"]).decode()
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield asked
        process.stdin.close()


LOG_LIRA = st.floats(-1e5, 1e5)


@settings(max_examples=200, deadline=None)
@given(values=st.lists(LOG_LIRA, min_size=1, max_size=30), eta=st.integers(-20_000, 100_000))
def test_every_eta_of_three_decimals_judges_alike(ask, values, eta):
    gaps = np.array([*values, eta / 1000, np.nextafter(eta / 1000, -np.inf)])
    found = ask(bytes=thousandths(gaps).tobytes())
    there = np.frombuffer(bytes.fromhex(found))
    assert ((there >= eta / 1000) == (gaps >= eta / 1000)).all()


def test_log_lira_that_is_too_large_stays_on_its_side(ask):
    gaps = np.array([1e12, -np.inf, 4.0])
    there = np.frombuffer(bytes.fromhex(ask(bytes=thousandths(gaps).tobytes())))
    assert there.tolist() == [2e6, -2e6, 4.0]


def test_what_is_packed_is_letters_and_digits_alone(ask):
    content = {"title": "</script>\u2028 ü", "none": None, "more": [{"a": b"\x00\xff"}, b"", 0.1]}
    text = pack(content)
    assert set(text) <= set(base64.b64encode(bytes(range(256)) * 99).decode()) | set("+/=")
    assert ask(text=text) == {**content, "more": [{"a": "00ff"}, "", 0.1]}


def test_pictures_are_made_smaller_by_their_mean():
    image = np.zeros((128, 96, 1), np.uint8)
    image[:2, :2] = [[[10], [20]], [[30], [40]]]
    small = smaller(image)
    assert small.shape == (64, 48, 1)
    assert small[0, 0, 0] == 25
    assert smaller(small) is small


def test_the_script_is_one_whole_without_modules():
    text = page_script(_STATIC / "report.js")
    assert not [line for line in text.splitlines() if line.startswith(("import", "export"))]
    assert "</" + "script" not in text.lower()
    assert "<!--" not in text
