"""The default progress bar, in a notebook or a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memowidgets.progress import Progress, Step
from memowidgets.visible import visible

__all__ = ["shown"]


@contextmanager
def shown(progress: Progress | None) -> Iterator[Progress]:
    """Yield the caller's own progress, or one that draws a bar until the work ends."""
    if progress is not None:
        yield progress
        return
    from tqdm.auto import tqdm

    with tqdm(total=None, leave=False) as bar:

        def draw(step: Step) -> None:
            if bar.disable:
                return
            if step.total != bar.total:
                bar.reset(step.total)
            words = f"{step.what} ({step.detail})" if step.detail else step.what
            words = visible(words)  # a layer's name is from a file
            if step.done != bar.n or bar.desc != f"{words}: ":
                bar.set_description(words, refresh=step.done == bar.n)
                bar.update(step.done - bar.n)

        yield Progress(draw)
        bar.total = bar.n  # done, if before its end: else a red bar stays in the notebook
