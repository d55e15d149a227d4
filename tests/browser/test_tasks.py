"""Three tasks on a recorded audit, and how many actions each takes a user."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from memowidgets.data import MCQDataset
from tests.browser.harness import in_view
from tests.browser.test_everywhere import counts, recorded
from tests.widgets.test_browser import OWN, QUESTIONS


class Hand:
    """A user's hand on a page: it acts, and counts clicks, keys and drags."""

    def __init__(self, page):
        self.page, self.actions = page, 0

    def click(self, what):
        what.click()
        self.actions += 1

    def press(self, key):
        self.page.keyboard.press(key)
        self.actions += 1


@pytest.fixture
def shown(widget_page):
    opened = widget_page([recorded("patients-smollm2")], width=960, height=780)
    opened.page.wait_for_selector(".mw-card")
    return opened


@pytest.mark.filterwarnings("ignore:only members of the target:UserWarning")
def test_the_five_most_at_risk_are_removed_and_the_cleaned_file_is_written(
    shown, tmp_path
):
    page, hand, audit = shown.page, Hand(shown.page), shown.names["audit"]
    worst = list(audit.score("psmi").nsmallest(5).index)
    flagged = counts(page)["flagged"]
    hand.click(page.locator(".mw-card").first)
    for done in range(1, 6):
        assert in_view(page.locator(".mw-sample"))
        hand.press("r")
        page.get_by_text(f"{done} of {flagged} decided").wait_for()
    assert hand.actions <= 6
    assert shown.python("dashboard.decisions.id.tolist()") == worst
    page.get_by_role("button", name="search, order, select").click()
    with page.expect_download() as downloading:
        hand.click(page.locator(".mw-export"))
    assert hand.actions <= 7
    downloading.value.save_as(tmp_path / "decisions.csv")
    with (tmp_path / "decisions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows if row["decision"] == "remove"] == worst

    audit.kept().to_csv(tmp_path / "cleaned.csv")
    again = MCQDataset.from_csv(tmp_path / "cleaned.csv")
    stay = [i for i, name in enumerate(audit.data.ids) if name not in worst]
    assert len(stay) == len(audit.data) - 5
    # neither the prompt's template nor canaries
    for one, i in zip(again, stay, strict=True):
        was = audit.data[i]
        assert one == replace(was, prompt=one.prompt, canary=False)


def test_a_wrong_label_takes_one_click_and_then_a_key_each(shown):
    page, hand = shown.page, Hand(shown.page)
    hand.click(page.locator('[data-filter="label looks wrong"]'))
    wrong = page.locator('[data-filter="label looks wrong"] .mw-count')
    many = int(wrong.inner_text())
    page.locator(".mw-where").get_by_text(f"1 of {many}").wait_for()
    page.locator(".mw-card").first.focus()
    named = []
    for done in range(1, 6):
        name = page.locator(
            ".mw-choice[data-decision=relabel] .mw-choice-text"
        ).inner_text()
        named.append(name.removeprefix("Relabel: "))
        assert in_view(page.locator(".mw-sample"))
        hand.press("l")
        page.get_by_text(f"{done} of {many} decided").wait_for()
        page.locator(".mw-where").get_by_text(f"{done + 1} of {many}").wait_for()
    assert hand.actions == 1 + 5
    made = shown.python(
        "[dashboard.decisions.decision.tolist(), dashboard.decisions.to.tolist()]"
    )
    assert made[0] == ["relabel"] * 5
    wards = shown.names["audit"].data.choices[0]
    letters = [chr(65 + wards.index(name)) for name in named]
    assert made[1] == letters


def decide(hand, many, of):
    """Keeps so many samples, each of which is seen, by a key each."""
    for done in range(1, many + 1):
        assert in_view(hand.page.locator(".mw-sample"))
        hand.press("k")
        hand.page.get_by_text(f"{done} of {of} decided").wait_for()


def test_ten_of_ones_own_samples_take_a_click_and_then_a_key_each(widget_page):
    page = widget_page([OWN.format(data=QUESTIONS)], width=960, height=780).page
    hand = Hand(page)
    page.wait_for_selector(".mw-card")  # nobody had to ask for the scores
    flagged = counts(page)["flagged"]
    assert flagged >= 10
    hand.click(page.locator(".mw-card").first)
    decide(hand, 10, flagged)
    assert hand.actions == 1 + 10


def test_a_budget_of_20_takes_two_clicks_and_then_a_key_each(shown):
    page, hand = shown.page, Hand(shown.page)
    hand.click(page.get_by_role("radio", name="20", exact=True))
    shown.eventually("dashboard.counts['flagged']", 20)
    page.locator(".mw-range").get_by_text("of 20").wait_for()
    hand.click(page.locator(".mw-card").first)
    decide(hand, 20, 20)
    assert hand.actions == 2 + 20
    worst = shown.names["audit"].score("psmi").nsmallest(20).index
    assert set(shown.python("dashboard.decisions.id.tolist()")) == set(worst)
