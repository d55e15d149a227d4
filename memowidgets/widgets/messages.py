"""What a page sends to its kernel, checked against these types before anything else.

What Python sends is listed in `sent`. `python -m scripts.jsdoc` writes both lists to
``static/messages.js``, by which the TypeScript compiler checks the page's code.
"""

# Without `from __future__ import annotations`, under which NotRequired would not be seen.
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NotRequired,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np
from numpy.typing import NDArray

from memowidgets.vocabulary import quoted

# -------------------------------------------------------------------- what a page says


class Part(TypedDict):
    """Samples that each of two compared scores flags at a budget, or does not."""

    budget: int
    flagged: list[bool]


class Shown(TypedDict, total=False):
    """What narrows and sorts the samples that a page shows. What is absent narrows nothing."""

    tau: float
    filter: str
    sort: str
    decision: str
    search: str
    part: Part | None


class AskPage(Shown):
    """Samples are wanted; only the answer to the newest request is shown.

    ``open`` is the sample that is wanted in full, ``at`` its place if that is not known.
    """

    type: Literal["page"]
    request: str
    page: int
    open: NotRequired[int | None]
    at: NotRequired[int]


class AskDetail(Shown):
    """One sample is opened; ``known`` asks for its scores, shadows and neighbours too."""

    type: Literal["detail"]
    request: str
    position: int
    known: NotRequired[bool]


class Decide(TypedDict):
    """A decision or a note on these positions; ``to`` is the new class, for "relabel"."""

    type: Literal["decide"]
    request: NotRequired[str]
    positions: list[int]
    decision: NotRequired[str]
    note: NotRequired[str]
    to: NotRequired[int]


class Plain(TypedDict):
    """What is said without more.

    "undo" takes the last decision back, and "export" wants the flagged and the decided samples as
    CSV (of an inspector alone, the decisions). "compute" computes what is picked, "references"
    trains reference models and shows their score, "check" trains the models that say which samples
    are memorised, "cancel" ends any of them, and "refresh" shows what came since. "play" says that
    time runs where some checkpoints are not scored. "saved" follows traits that were set: unlike
    them, it raises an error in the page without a kernel.
    """

    type: Literal[
        "undo",
        "export",
        "compute",
        "references",
        "check",
        "cancel",
        "refresh",
        "play",
        "saved",
    ]
    request: NotRequired[str]


class AskLogLira(TypedDict):
    """Log-LiRA is wanted, because η moves."""

    type: Literal["log_lira"]
    version: int


class Knock(TypedDict):
    """The page asks whether the kernel has time, and what it shows by then."""

    type: Literal["knock"]
    request: str


class Share(TypedDict):
    """The report as a page, or Python that restores this view: ``"report"`` or ``"python"``."""

    type: Literal["share"]
    request: str
    what: str


class AskMoments(TypedDict):
    """The scores at these checkpoints are wanted, to play them."""

    type: Literal["moments"]
    checkpoints: list[str]


class Address(TypedDict):
    """What the address of the page says of the view, unchecked."""

    type: Literal["address"]
    text: str


FromPage = (
    AskPage
    | AskDetail
    | Decide
    | Plain
    | AskLogLira
    | Knock
    | Share
    | AskMoments
    | Address
)

# -------------------------------------------------------------------- what both sides keep


class Pick(TypedDict):
    """A score, layer and checkpoint."""

    checkpoint: str
    layer: str
    metric: str


class Asked(TypedDict, total=False):
    """What was asked for, which stays when the scores change: neither part where τ itself was."""

    count: int
    share: float


class State(TypedDict, total=False):
    """What restores a view of the dashboard."""

    checkpoint: str
    layer: str
    metric: str
    axis: str
    tau: float
    asked: Asked
    eta: float
    comparing: list[Pick]
    more: bool
    filter: str
    sort: str
    decision: str
    page: int
    selected: int | None


# -------------------------------------------------------------------- checks

_KINDS: dict[Any, tuple[str, Any]] = {
    int: ("a whole number", int),
    float: ("a number", (int, float)),
    str: ("a text", str),
    bool: ("true or false", bool),
    bytes: ("bytes", (bytes, memoryview)),
    NoneType: ("null", NoneType),
}


@cache
def fields(message: Any) -> dict[str, Any]:
    """Return the types of a message's parts by name, resolved."""
    return get_type_hints(message)


def mismatch(value: Any, kind: Any, name: str) -> str:
    """Return what is wrong with a value, "" if it is of its type.

    Examples
    --------
    >>> mismatch({"type": "share", "what": 3}, Share, "the message")
    "the message lacks 'request'"
    >>> mismatch("x", int, "page")
    "page must be a whole number, not 'x'"
    """
    origin, arguments = get_origin(kind), get_args(kind)
    found, parts = "", []
    if is_typeddict(kind):
        found = _mismatch_of_parts(value, kind, name)
    elif origin in (Union, UnionType):
        each = [mismatch(value, one, name) for one in arguments]
        found = "" if "" in each else each[0]
    elif origin is Literal:
        found = "" if value in arguments else f"{name} must be {arguments[0]!r}"
    elif origin is dict:
        fits = isinstance(value, dict)
        found = "" if fits else f"{name} must be an object, not {quoted(value)}"
        parts = (
            [(f"{name}.{key}", arguments[1], value[key]) for key in value]
            if fits
            else []
        )
    elif origin in (list, tuple):
        fits = isinstance(value, list | tuple)
        if fits and origin is list:
            arguments = arguments * len(value)
        fits = fits and len(value) == len(arguments)
        found = "" if fits else f"{name} must be a list, not {quoted(value)}"
        parts = [
            (f"{name}[{i}]", arguments[i], part)
            for i, part in enumerate(value if fits else ())
        ]
    elif kind is not Any:
        words, types = _KINDS[kind]
        fits = isinstance(value, types) and (
            kind is bool or not isinstance(value, bool)
        )
        found = "" if fits else f"{name} must be {words}, not {quoted(value)}"
    inner = (mismatch(part, each, place) for place, each, part in parts)
    return found or next(filter(None, inner), "")


def _mismatch_of_parts(value: Any, kind: Any, name: str) -> str:
    if not isinstance(value, dict):
        return f"{name} must be an object, not {type(value).__name__}"
    missing = sorted(kind.__required_keys__ - value.keys())
    if missing:
        return f"{name} lacks {missing[0]!r}"
    found = (
        mismatch(value[key], each, key)
        for key, each in fields(kind).items()
        if key in value
    )
    return next(filter(None, found), "")


def checked_message(content: Any) -> Any:
    """Return a message from a page. Raise an error if it is of no known kind, or ill-formed.

    Raises
    ------
    TypeError
        If it is not an object, or a part of it is missing or of another type.
    ValueError
        If its kind is unknown.
    """
    if not isinstance(content, dict):
        raise TypeError(f"a message must be an object, not {type(content).__name__}")
    kind = content.get("type")
    if not isinstance(kind, str) or kind not in _by_kind():
        raise ValueError(f"unknown kind of message: {quoted(kind)}")
    problem = mismatch(content, _by_kind()[kind], "the message")
    if problem:
        raise TypeError(problem)
    return content


@cache
def _by_kind() -> dict[str, Any]:
    """Return the messages from a page by their kinds."""
    return {
        kind: of for of in get_args(FromPage) for kind in get_args(fields(of)["type"])
    }


@dataclass(frozen=True)
class Choice:
    """One entry of a picker.

    Attributes
    ----------
    value : str
        Value that is passed to the source.
    label : str
        Label for the user.
    marked : bool
        Whether this entry is recommended: the checkpoint to look at, the last layer, PSMI.
    uses_layer : bool
        Whether a score differs from layer to layer.
    """

    value: str
    label: str
    marked: bool = False
    uses_layer: bool = True


@dataclass(frozen=True)
class Moment:
    """One checkpoint on the timeline.

    Attributes
    ----------
    value, label : str
        Its name, and what a reader calls it.
    epoch : float
        When it is.
    of : str
        Digest of its weights.
    loss : float
        Median training loss.
    held_out : float, optional
        Mean loss of the held-out samples; None where none is known.
    why : str
        What it means to look here, in a few words.
    star : bool
        Whether this is the best time to predict.
    """

    value: str
    label: str
    epoch: float
    of: str
    loss: float
    held_out: float | None
    why: str
    star: bool


@dataclass(frozen=True)
class Missing:
    """What is missing of a choice, and how `AuditView.view` makes it.

    Attributes
    ----------
    button : str
        Label of the button that makes it.
    cost : str
        What is done and what it takes, as in ``Scoring 356 samples, about 2 s.``; "" if that is
        not known.
    short : bool
        Whether it is known to take less than ten seconds, so that it starts by itself.
    trains : bool
        Whether models are trained for it, which never begins by itself.
    why_not : str
        Why it cannot be made; "" if it can.
    """

    button: str = "Compute"
    cost: str = ""
    short: bool = False
    trains: bool = False
    why_not: str = ""

    @property
    def label(self) -> str:
        """Label of the button, "" where there is none."""
        return "" if self.why_not else self.button


@dataclass(frozen=True)
class Lines:
    """Lines of Python that a reader copies, unfolded in place.

    Attributes
    ----------
    title : str
        What unfolds them.
    said : str
        What stands above them.
    code : str
        The lines.
    """

    title: str
    said: str
    code: str


@dataclass(frozen=True)
class NextStep:
    """Models that would say more of which samples are memorised.

    Attributes
    ----------
    what : str
        What is trained, or what to do instead, in a sentence without its full stop.
    missing : Missing
        The button that trains them, or why they cannot be trained.
    lines : Lines, optional
        What begins a new run where one is needed for it.
    """

    what: str
    missing: Missing
    lines: Lines | None = None

    @property
    def wire(self) -> dict[str, Any]:
        """The same for the page."""
        return {
            "said": self.missing.why_not or self.what,
            "button": self.missing.label,
            "lines": None if self.lines is None else asdict(self.lines),
        }


@dataclass(frozen=True)
class Steps:
    """What can be done where nobody knows which samples are memorised.

    Attributes
    ----------
    more : NextStep
        Reference models, which find more.
    know : NextStep
        Shadow models, which say which samples are memorised.
    """

    more: NextStep
    know: NextStep

    @property
    def wire(self) -> dict[str, dict[str, Any]]:
        """The same for the page."""
        return {"more": self.more.wire, "know": self.know.wire}


@dataclass(frozen=True)
class ShadowGaps:
    """Logit gaps of one sample under models that were trained on it, and under others.

    Attributes
    ----------
    inside, outside : array of shape (n_models,), float64
        Logit gaps of the shadow models that trained on it, and of the others.
    target : float
        Logit gap of the audited model.
    fit_in, fit_out : tuple of float
        Mean and standard deviation of the Gaussian of each side.
    log_lira : float
        In nats; NaN for a sample that has none.
    checkpoint : str
        Label of the checkpoint of the gaps.
    support : (int, int), optional
        How many models memorised it, and how many were trained on it, the audited one included.
        None with fewer than nine models on a side.
    """

    inside: NDArray[np.float64]
    outside: NDArray[np.float64]
    target: float
    fit_in: tuple[float, float]
    fit_out: tuple[float, float]
    log_lira: float
    checkpoint: str
    support: tuple[int, int] | None = None


@dataclass(frozen=True)
class SampleDetail:
    """All that is known of one sample.

    Attributes
    ----------
    title : str
        Name of the score.
    checkpoints : sequence of Choice
        Rows of `scores`. The marked one is shown.
    layers : sequence of Choice
        Columns of `scores`; one without a name for a score that has no layers.
    scores : array of shape (n_checkpoints, n_layers), float64
        NaN where it is not computed, or the sample has none.
    shadows : ShadowGaps, optional
        None without shadow models.
    neighbours : sequence of (int, float)
        Positions of the samples whose representations are nearest, and how far they are.
    notes : sequence of str
        What is missing, and why.
    guess : int, optional
        Class that the finished model gives.
    """

    title: str
    checkpoints: Sequence[Choice]
    layers: Sequence[Choice]
    scores: NDArray[np.float64]
    shadows: ShadowGaps | None = None
    neighbours: Sequence[tuple[int, float]] = ()
    notes: Sequence[str] = ()
    guess: int | None = None
