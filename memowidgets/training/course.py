"""Record, in a run directory, of a training that another loop runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from memowidgets.store import RunDirectory, StoreError

COURSE = "trainer.json"


@dataclass(frozen=True)
class Course:
    """Course of a training that another loop runs.

    Attributes
    ----------
    steps_per_epoch, total_steps : int
        Optimizer steps in an epoch, and in the whole training.
    weights : dict of str to str
        Digest of the trained weights by checkpoint, to recognise a training.
    """

    steps_per_epoch: int
    total_steps: int
    weights: dict[str, str] = field(default_factory=dict)


def read_course(run: RunDirectory) -> Course | None:
    """Return the course of an external training, or None if the audit trains its own target."""
    if not run.has_file(COURSE):
        return None
    try:
        course = Course(**run.read_note(COURSE))
    except TypeError as error:
        raise StoreError(f"{run.path / COURSE} is broken: {error}") from None
    counts = (course.steps_per_epoch, course.total_steps)
    if not all(type(count) is int and count > 0 for count in counts):
        raise StoreError(f"{run.path / COURSE} is broken: its numbers of steps are invalid")
    if not isinstance(course.weights, dict):
        raise StoreError(f"{run.path / COURSE} is broken: its weights are not digests by name")
    return course
