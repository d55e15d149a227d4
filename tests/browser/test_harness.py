"""The harness itself: it shows a widget, hears the kernel, and notices what must not happen."""

from __future__ import annotations

import json

import pytest

from tests.browser.harness import is_local

COUNTER = '''
import anywidget, traitlets
class Counter(anywidget.AnyWidget):
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


def test_a_widget_answers_and_what_must_not_happen_is_noticed(notebook_page, monkeypatch, tmp_path):
    monkeypatch.setenv("MEMOWIDGETS_SCREENSHOTS", str(tmp_path))
    notebook = notebook_page([COUNTER, "1 / 0 if 'fails' in globals() else None"])
    button = notebook.page.locator("button.counter")
    button.click()
    button.filter(has_text="count 1").wait_for()
    notebook.wait_until_idle()
    assert notebook.python('[counter.count, "it\'s"]') == [1, "it's"]
    with pytest.raises(RuntimeError, match="NameError"):
        notebook.python("y")
    files = notebook.screenshots("harness", of="button.counter")
    assert [f.name for f in files] == [
        "harness-1400-light.png",
        "harness-600-light.png",
        "harness-1400-dark.png",
        "harness-600-dark.png",
    ]
    assert all(f.stat().st_size for f in files)
    assert "Counter" in json.dumps(notebook.save())
    monkeypatch.delenv("MEMOWIDGETS_SCREENSHOTS")
    assert notebook.screenshots("not-asked-for") == []
    notebook.page.evaluate("() => { setTimeout(() => { throw new Error('thrown on purpose') }) }")
    notebook.page.evaluate("() => { console.error('said on purpose') }")
    notebook.page.evaluate("() => fetch('http://192.0.2.1/').catch(() => {})")
    notebook.page.wait_for_timeout(200)
    problems = "\n".join(notebook.unexpected())
    assert "thrown on purpose" in problems
    assert "said on purpose" in problems
    assert "request leaves the machine: http://192.0.2.1/" in problems
    notebook.allow("on purpose")
    notebook.allow(r"192\.0\.2\.1|ERR_")
    notebook.python("globals().update(fails=True)")
    with pytest.raises(pytest.fail.Exception, match="ZeroDivisionError"):
        notebook.run_all()


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:8888/lab", True),
        ("ws://localhost:1/api", True),
        ("http://[::1]:1/", True),
        ("data:text/plain,x", True),
        ("blob:http://localhost/1", True),
        ("https://cdn.example.org/x.js", False),
        ("http://127.0.0.1.example.org/", False),
        ("http://10.0.0.1/", False),
    ],
)
def test_what_is_local(url, local):
    assert is_local(url) is local
