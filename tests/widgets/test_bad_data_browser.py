"""Odd data of one's own, in a dashboard in a real browser: what is said is true, and fits."""

from __future__ import annotations

import numpy as np
import pytest

import memowidgets as mw
from tests.widgets.test_browser import BEYOND
from tests.widgets.test_kinds_browser import SPILT

N = 60
SENTENCE = "This label is a whole sentence of so many words that no row has room for it"
SHOW = """
import memowidgets as mw
dashboard = audit.dashboard()
dashboard
"""


def arrays(k=3, *, n=N, texts=None, names=None, states=None, **more):
    """An audit of texts whose model has learned its classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % k
    texts = texts or [f"Message {i}" for i in range(n)]
    data = mw.data.TextDataset.from_texts(texts, labels, names)
    if states is None:
        states = rng.normal(size=(n, 8)) + 2 * np.eye(k, 8)[labels]
        states[:5] = states[::-1][:5]  # which look like another class
    learned = 6 * np.eye(k)[labels] + rng.normal(size=(n, k)) if k < 100 else None
    return mw.Audit.from_arrays(
        labels, states, learned, samples=data, log_lira=more.get("log_lira")
    )


def failing():
    """An audit whose only other score fails in the middle of its work."""

    @mw.score("halfway", spoken="Halfway")
    def halfway(logits):
        raise MemoryError(f"{len(logits)} rows <b>did not fit</b>")

    return arrays()


DRAWN = """() => new Promise((done) =>
    requestAnimationFrame(() => requestAnimationFrame(done)))"""
FAR = 9 * np.eye(3)[np.arange(N) % 3] + np.random.default_rng(1).normal(0, 0.1, (N, 3))
EQUAL = np.ones((N, 4))
LARGE = [f"{'word ' * 40_000}{i}" for i in range(N)]
# what is audited, what the page says, and what it doesn't say
ROWS = {
    "each class has one sample": (
        lambda: arrays(4, n=4),
        ["Scoring stopped", "0 of 4 members share their class"],
        ["Scored."],
    ),
    "10,000 classes": (
        lambda: arrays(10_000, n=20_000, states=np.ones((20_000, 2))),
        ["Not scored yet", "20\u202f000 samples", "Compute"],
        ["Scored."],
    ),
    "nothing is flagged": (
        lambda: arrays(states=FAR),
        ["0 of 60 flagged", "No sample here"],
        ["1 of 60"],
    ),
    "all are flagged, by one score": (
        lambda: arrays(states=EQUAL),
        ["60 of 60 flagged", "says nothing", "0 of 60 decided"],
        ["holds about half"],
    ),
    "nothing is memorised": (
        lambda: arrays(log_lira=np.full(N, -1.0)),
        ["None of these samples is memorised", "flagged only"],
        ["0 of 0", "AUC"],
    ),
    "all are memorised": (
        lambda: arrays(log_lira=np.full(N, 9.0)),
        ["All of these samples are memorised", "0 flagged only"],
        ["AUC"],
    ),
    "texts of 200 kB": (lambda: arrays(texts=LARGE), ["word word"], []),
    "a label is a sentence": (
        lambda: arrays(30, names=[f"{SENTENCE}, {i}" for i in range(30)]),
        ["30 of 30 classes", "predict nothing"],
        [f"{SENTENCE}, 1' (2)", "holds about half"],
    ),
    "a score that fails": (failing, ["Scored.", "Message"], []),
}


def it_fails_and_the_old_view_stays(page):
    page.get_by_label("metric", exact=True).select_option("halfway")
    page.get_by_role("button", name="Compute", exact=True).click()
    failed = page.locator(".mw-message-error")
    failed.get_by_text("60 rows <b>did not fit</b>").wait_for()
    assert "Below is still PSMI" in failed.inner_text()
    page.locator(".mw-explorer.mw-dimmed").wait_for()
    page.get_by_label("metric", exact=True).select_option("psmi")
    page.locator(".mw-explorer:not(.mw-dimmed)").wait_for()
    assert failed.count() == 0


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_page_of_odd_data_says_what_is_true_and_nothing_is_cut_off(widget_page):
    shown = widget_page([], width=960, height=780)
    page = shown.page
    for kind, (make, said, unsaid) in ROWS.items():
        shown.names["audit"] = make()
        shown.run(SHOW)
        dashboard = shown.names["dashboard"]
        assert dashboard.wait(60)
        shown.wait_until_idle()
        box = page.locator(".mw-dashboard")
        for part in said:
            box.get_by_text(part).first.wait_for()
        if kind == "a score that fails":
            it_fails_and_the_old_view_stays(page)
        text = box.inner_text()
        assert [part for part in unsaid if part in text] == [], kind
        for width in (960, 390):
            page.set_viewport_size({"width": width, "height": 780})
            page.evaluate(DRAWN)
            assert page.evaluate(BEYOND) == [], (kind, width)
            if page.locator(".mw-inspector").count():
                assert page.evaluate(SPILT) == [], (kind, width)
            named = f"odd-{kind.replace(' ', '-')}"
            shown.screenshots(named, of=".mw-dashboard", widths=[width])
        page.set_viewport_size({"width": 960, "height": 780})
        dashboard.close()
        page.locator(".mw-dashboard").wait_for(state="detached")
