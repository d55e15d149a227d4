"""All four playgrounds on one page: guess, drag, turn, slide, switch, and look."""

from __future__ import annotations

import re

import pytest

from scripts.live import PLAYGROUNDS
from tests.browser.harness import drag, settled

CELLS = [
    "from memowidgets.teaching import *\nwatch = MemorizationPlayground(n=60, width=8)\nwatch",
    "psmi = PSMIPlayground(n=90)\npsmi",
    "lira = LiRAPlayground()\nlira",
    "theorem = TheoremPlayground()\ntheorem",
]


@pytest.fixture
def notebook(widget_page):
    notebook = widget_page(CELLS, height=1400)
    notebook.page.set_default_timeout(90_000)
    for name in PLAYGROUNDS:
        notebook.page.wait_for_selector(f".mw-play-{name} canvas")
    return notebook


def agree(notebook, view, name, expression, **tolerance):
    """Wait until the page shows the number that the kernel has."""
    shown = notebook.page.locator(f".mw-play-{view}")

    def number():
        return pytest.approx(float(shown.get_attribute(f"data-{name}")), **tolerance)

    notebook.eventually(expression, number)


def on_canvas(notebook, canvas, x, y):
    """Where a place of the cloud is drawn, in shares of its sides."""
    reach = notebook.python("max(4.6, 1.12 * float(abs(psmi.points).max()))")
    width, height = (canvas.bounding_box()[side] for side in ("width", "height"))
    unit = min(width, height) / 2 / reach
    return 0.5 + x * unit / width, 0.5 - y * unit / height


@pytest.mark.timeout(900)  # three front ends, and a picture of each in both themes
def test_the_four_playgrounds(notebook):
    the_round(notebook)
    the_cloud(notebook)
    cloud_and_both_sliders_are_on_one_screen(notebook)
    the_gaps(notebook)
    the_mixture(notebook)
    every_canvas_follows_the_theme(notebook)
    for name in PLAYGROUNDS:
        notebook.screenshots(f"teaching-{name}", of=f".mw-play-{name}")


def the_round(notebook):
    """Guess, train, ask others: Python has what the page says."""
    page = notebook.page
    view = page.locator(".mw-play-watch")
    page.emulate_media(reduced_motion="reduce")  # no epoch waits for its picture
    view.locator(".mw-plot-cloud").focus()
    for _ in range(5):
        page.keyboard.press("PageDown")
        page.keyboard.press("Enter")
    for name in ("Train to the end", "Ask 32 other networks", "Another round"):
        view.locator(".mw-watch-next").click()
        view.get_by_role("button", name=name, disabled=False).wait_for()
    page.emulate_media(reduced_motion="no-preference")
    notebook.eventually(
        "watch.guess is not None and watch.guess.tolist() == [1, 2, 3, 4, 5]"
    )
    right = notebook.python("int((watch.log_lira[watch.guess] >= 4).sum())")
    assert (
        f"Memorised are {right} of your five"
        in view.locator(".mw-watch-phase").inner_text()
    )
    assert notebook.python("len(watch.psmi) == len(watch.log_lira)")


def the_cloud(notebook):
    page = notebook.page
    cloud = page.locator(".mw-play-psmi .mw-plot-cloud")
    start = on_canvas(notebook, cloud, *notebook.python("psmi.points[0].tolist()"))
    centre = notebook.python("psmi.points[psmi.labels == 1].mean(axis=0).tolist()")
    drag(cloud, start, on_canvas(notebook, cloud, *centre))
    notebook.eventually(
        "psmi.psmi is not None and bool(psmi.psmi[0] < 0)"
        " and bool(abs(psmi.points[0] - psmi.points[psmi.labels == 1].mean(0)).max() < 0.2)"
    )
    page.wait_for_function(
        "() => document.querySelector('.mw-play-psmi').textContent.includes('below 0: at risk')"
    )
    shown = page.locator(".mw-play-psmi .mw-fact").filter(
        has_text="PSMI of the ringed point"
    )
    notebook.eventually(
        "f'{psmi.psmi[0]:.2f}'.replace('-', '−')",
        shown.locator("div").nth(1).inner_text,
    )
    page.locator(".mw-play-psmi").get_by_role("radio", name="■ B").click()
    notebook.eventually("int(psmi.labels[0]) == 1 and bool(psmi.psmi[0] > 0)")
    cloud.focus()
    before = notebook.python("psmi.points[0].tolist()")
    page.keyboard.press("ArrowRight")
    notebook.eventually(f"bool(psmi.points[0][0] > {before[0]} + 0.05)")
    page.keyboard.press("PageDown")
    notebook.eventually("psmi.selected == 1")
    page.keyboard.press("Delete")
    notebook.eventually("len(psmi.points) == 89")
    page.locator(".mw-play-psmi").get_by_role("button", name="Add").click()
    notebook.eventually("len(psmi.points) == 90 and psmi.selected == 89")
    page.get_by_label("angle of the direction, in degrees").fill("120")
    notebook.eventually("psmi.angle == 120")
    page.locator(".mw-play-psmi").get_by_role("button", name="Make it atypical").click()
    notebook.eventually("bool(psmi.psmi[psmi.selected] < 0)")
    the_five_questions_about_a_point_have_their_answers(notebook)


def the_five_questions_about_a_point_have_their_answers(notebook):
    """The page's numbers are those of the points that the kernel has."""
    page = notebook.page
    page.get_by_label("the two above and noise").press("ArrowRight")
    notebook.eventually("psmi.dimension == 4")
    page.locator(".mw-fact-detail").get_by_text("d = 4;").wait_for()
    names = page.locator(".mw-play-psmi .mw-fact-name").all_inner_texts()
    values = page.locator(".mw-play-psmi .mw-fact-value").all_inner_texts()
    assert [len(names), len(values)] == [5, 5]
    goes, along, every, rank, deep = (text.replace("−", "-") for text in values)
    psmi = notebook.python("psmi.psmi.tolist()")
    chosen = psmi[notebook.python("psmi.selected")]
    assert goes == f"{chosen:.2f}"
    assert rank == f"{sum(value < chosen for value in psmi) + 1} of {len(psmi)}"
    low, high = map(float, every.split(" to "))
    assert low <= float(along) <= high
    assert low < chosen < high
    assert 5 * chosen < float(deep.split(" ± ")[0]) < 0, "noise makes it smaller"
    below = sum(value <= 0 for value in psmi)
    details = page.locator(".mw-play-psmi .mw-fact-detail").all_inner_texts()
    assert details[0].endswith("at risk")
    assert details[3].startswith(f"{below} are below 0")


def cloud_and_both_sliders_are_on_one_screen(notebook):
    """With the other plot and the results, in what JupyterLab leaves of 1440 × 900 pixels."""
    page = notebook.page
    before = page.viewport_size
    notebook.resize(1300, 790)
    page.locator(".mw-play-psmi").evaluate(
        "view => view.scrollIntoView({block: 'start'})"
    )
    for part in (
        page.locator(".mw-play-psmi .mw-plot-cloud"),
        page.get_by_label("angle of the direction, in degrees"),
        page.get_by_label("the two above and noise"),
        page.locator(".mw-plot-shadow"),
        page.locator(".mw-play-psmi .mw-play-facts"),
    ):
        box = part.bounding_box()
        assert 0 <= box["y"] <= box["y"] + box["height"] <= 790
    notebook.resize(**before)


def every_canvas_follows_the_theme(notebook):
    """The theme, changed while the playgrounds are open, in view or not."""
    pictures = "() => [...document.querySelectorAll('.mw-plot')].map((plot) => plot.toDataURL())"
    notebook.wait_until_idle()
    light = settled(notebook.page, pictures, 500)
    assert len(light) == 11
    for theme in ("dark", "light"):
        before = notebook.page.evaluate(pictures)
        notebook.theme(theme)
        notebook.page.wait_for_function(
            f"(before) => ({pictures})().every((now, i) => now !== before[i])",
            arg=before,
            polling=100,
        )
    notebook.page.wait_for_function(
        f"(light) => ({pictures})().every((now, i) => now === light[i])",
        arg=light,
        polling=100,
    )


def the_gaps(notebook):
    """Two rows of models and one question come first; the answer brings everything else."""
    page = notebook.page
    view = page.locator(".mw-play-lira")
    assert view.locator("canvas").count() == 1
    assert "6.5" in view.locator("canvas").get_attribute("aria-label")
    assert view.locator(".mw-fact, .mw-slide").count() == 0
    view.get_by_role("button", name="Yes").press("Enter")
    drag(view.locator(".mw-plot-gaps"), (0.5, 0.5), (0.6, 0.55))
    notebook.eventually("lira.target_gap != 6.5")
    agree(notebook, "lira", "log-lira", "lira.log_lira", rel=1e-6)
    view.get_by_role("radio", name="shrunk").click()
    notebook.eventually("lira.variance == 'shrunk'")
    view.get_by_role("button", name="Other shadow models").click()
    notebook.eventually("lira.seed == 1")
    agree(notebook, "lira", "log-lira", "lira.log_lira", rel=1e-6)
    page.get_by_label("half of them trained on the sample").press("Home")
    notebook.eventually("lira.n_shadows == 4")
    what_is_spoken_follows_python(
        notebook, "lira", "n_shadows", 64, "log-LiRA {}", "lira.log_lira"
    )


def what_is_spoken_follows_python(notebook, view, trait, value, words, number):
    """The page speaks the number that follows from what the kernel has set."""
    notebook.python(f"{view}.set_trait('{trait}', {value})")
    notebook.eventually(f"{number} is not None")
    spoken = words.format(notebook.python(f"f'{{{number}:.1f}}'").replace("-", "−"))
    status = notebook.page.locator(f".mw-play-{view} .mw-spoken").element_handle()
    notebook.page.wait_for_function(
        "([node, text]) => node.textContent.includes(text)", arg=[status, spoken]
    )


def the_mixture(notebook):
    page = notebook.page
    view = page.locator(".mw-play-theorem")
    view.get_by_text("above 0, as the theorem says").wait_for()
    drag(page.locator(".mw-plot-histogram"), (0.7, 0.7), (0.5, 0.7))
    notebook.eventually("theorem.tau < -0.5")
    said = "() => document.querySelector('.mw-play-theorem .mw-spoken').textContent"
    spoken = settled(page, said, 500)
    let_go = re.search(r"τ (\S+):", spoken)[1].replace("−", "-")
    # the drag has come to its end
    notebook.eventually(f"abs(theorem.tau - {let_go}) < 0.006")
    what_is_spoken_follows_python(
        notebook, "theorem", "tau", -1.5, "τ {}", "theorem.tau"
    )
    notebook.eventually("theorem.rates is not None")
    agree(notebook, "theorem", "tpr", "theorem.rates['tpr']", abs=1e-9)
    view.get_by_role("button", name="τ = 0").click()
    notebook.eventually("theorem.tau == 0")
    view.get_by_role("button", name="Heavy tails").click()
    notebook.eventually("theorem.heavy_tails")
    typical = view.locator(".mw-fact").filter(has_text="mean PSMI of others")
    typical.get_by_text("outside the theorem").wait_for()
    agree(notebook, "theorem", "fpr", "theorem.rates['fpr']", abs=1e-9)
