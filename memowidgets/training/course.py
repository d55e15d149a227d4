"""The course of a training that another loop runs, as its run directory remembers it."""

from __future__ import annotations

from dataclasses import dataclass, field

from memowidgets.store import RunDirectory, StoreError

__all__ = ["COURSE", "Course", "read_course"]

COURSE = "trainer.json"


@dataclass(frozen=True)
class Course:
    """How a training outside runs, as its run directory remembers it.

    Attributes
    ----------
    steps_per_epoch, total_steps : int
        Optimizer steps in a pass over the members, and in the whole training.
    weights : dict of str to str
        A digest of what is trained, by checkpoint: to know a training when it comes again.
    """

    steps_per_epoch: int
    total_steps: int
    weights: dict[str, str] = field(default_factory=dict)


def read_course(run: RunDirectory) -> Course | None:
    """The course of a training outside; None where the audit trains its target itself."""
    if not run.has_file(COURSE):
        return None
    try:
        course = Course(**run.read_note(COURSE))
    except TypeError as error:
        raise StoreError(f"{run.path / COURSE} is broken: {error}") from None
    counts = (course.steps_per_epoch, course.total_steps)
    if not all(type(count) is int and count > 0 for count in counts):
        raise StoreError(f"{run.path / COURSE} is broken: its numbers of steps are none")
    if not isinstance(course.weights, dict):
        raise StoreError(f"{run.path / COURSE} is broken: its weights are no digests by name")
    return course
