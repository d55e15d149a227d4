"""The harness itself: it shows a widget, hears Python, and notices what must not happen."""

from __future__ import annotations

import pytest

from tests.browser.harness import is_local

COUNTER = '''
import anywidget, traitlets
class Counter(anywidget.AnyWidget):
    _css = ""
    _esm = """
    function render({ model, el }) {
      const button = document.createElement("button");
      button.className = "counter";
      const show = () => { button.textContent = "count " + model.get("count"); };
      button.onclick = () => { model.set("count", model.get("count") + 1); model.save_changes(); };
      model.on("change:count", show);
      show();
      el.append(button);
    }
    export default { render };
    """
    count = traitlets.Int(0).tag(sync=True)
counter = Counter()
counter
'''


def test_a_widget_answers_and_what_must_not_happen_is_noticed(
    widget_page, monkeypatch, tmp_path
):
    monkeypatch.setenv("MEMOWIDGETS_SCREENSHOTS", str(tmp_path))
    shown = widget_page([COUNTER])
    page, button = shown.page, shown.page.locator("button.counter")
    button.click()
    button.filter(has_text="count 1").wait_for()
    shown.wait_until_idle()
    assert shown.python('[counter.count, "it\'s"]') == [1, "it's"]
    with pytest.raises(RuntimeError, match="NameError"):
        shown.python("y")
    shown.screenshots("harness", of="button.counter", widths=[600])
    assert (tmp_path / "harness-600-dark.png").stat().st_size
    for event, code, problem in (
        (
            "pageerror",
            "throw new Error('thrown on purpose')",
            "page error: thrown on purpose",
        ),
        (
            "console",
            "console.error('said on purpose')",
            "console error: said on purpose",
        ),
        (
            "request",
            "fetch('http://192.0.2.1/')",
            "request leaves the machine: http://192.0.2.1/",
        ),
    ):
        with page.expect_event(event):
            page.evaluate(f"() => {{ setTimeout(() => {{ {code} }}) }}")
        assert problem in "\n".join(shown.unexpected())
    shown.allow(r"on purpose|192\.0\.2\.1|ERR_|Failed to fetch")


HERE = ("http://127.0.0.1:8888/lab", "ws://localhost:1/api", "http://[::1]:1/", "data:text/plain,x",
        "blob:http://localhost/1")  # fmt: skip
ELSEWHERE = (
    "https://cdn.example.org/x.js",
    "http://127.0.0.1.example.org/",
    "http://10.0.0.1/",
)


def test_what_is_local():
    assert [url for url in (*HERE, *ELSEWHERE) if is_local(url)] == [*HERE]
