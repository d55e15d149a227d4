"""Every message between a page and its kernel, and the traits that hold more than a number.

``static/messages.js`` says the same for the page, and a test compares both. What a page sends is
checked against these types before anything else; what Python sends is checked in tests.
"""

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

from memowidgets.visible import quoted

# -------------------------------------------------------------------- what a page says


class Saved(TypedDict):
    """Traits were set. Unlike them, a message raises an error in the page without a kernel."""

    type: Literal["saved"]


class Select(TypedDict):
    """The user chose a sample, or Python did: it goes both ways."""

    type: Literal["select"]
    position: int | None


class Shown(TypedDict, total=False):
    """What narrows and sorts the samples that a page shows. What is absent narrows nothing."""

    tau: float
    rule: str
    filter: str
    sort: str
    decision: str
    label: int | None
    search: str
    between: tuple[float, float] | None


class AskPage(Shown):
    """Samples are wanted; only the answer to the newest request is shown."""

    type: Literal["page"]
    request: str
    page: int


class AskDetail(Shown):
    """One sample is opened; ``known`` asks for its scores, shadows and neighbours too."""

    type: Literal["detail"]
    request: str
    position: int
    known: NotRequired[bool]


class Decide(Shown):
    """A decision or a note, on these positions or on all samples that the filter shows.

    ``expected`` says which samples the user agreed to, as ``these`` of a page, and ``only`` which
    decision the filter was for. ``to`` is the number of the new class, for "relabel".
    """

    type: Literal["decide"]
    request: NotRequired[str]
    positions: NotRequired[list[int]]
    note: NotRequired[str]
    to: NotRequired[int]
    only: NotRequired[str]
    expected: NotRequired[str]


class EditText(TypedDict):
    """Edited words of a sample; None where a part stays as it is."""

    type: Literal["edit"]
    request: NotRequired[str]
    position: int
    words: list[str | None]


class Undo(TypedDict):
    """Take the last decision back."""

    type: Literal["undo"]
    request: NotRequired[str]


class Export(TypedDict):
    """The flagged and the decided samples as a file; alone, an inspector has the decisions as CSV.

    ``suffix`` is ".csv" or ".jsonl", and ``samples`` asks for what the samples contain too.
    """

    type: Literal["export"]
    request: NotRequired[str]
    suffix: NotRequired[str]
    samples: NotRequired[bool]


class ComputeAt(TypedDict):
    """Compute the score at another layer and checkpoint."""

    type: Literal["compute_at"]
    request: NotRequired[str]
    layer: str
    checkpoint: str


class AskLogLira(TypedDict):
    """Log-LiRA is wanted, because η moves."""

    type: Literal["log_lira"]
    version: int


class Compute(TypedDict):
    """Compute what is picked."""

    type: Literal["compute"]


class AskCheck(TypedDict):
    """Time the offered check, or make it if it was timed."""

    type: Literal["check"]


class Cancel(TypedDict):
    """Cancel the work."""

    type: Literal["cancel"]


class Refresh(TypedDict):
    """Show what came since."""

    type: Literal["refresh"]


class Knock(TypedDict):
    """The page asks whether the kernel has time, and what it shows by then."""

    type: Literal["knock"]
    request: str


class Share(TypedDict):
    """The report as a page, or Python that restores this view: ``"report"`` or ``"python"``."""

    type: Literal["share"]
    request: str
    what: str


class Address(TypedDict):
    """What the address of the page says of the view, unchecked."""

    type: Literal["address"]
    text: str


FromPage = (
    Saved
    | Select
    | AskPage
    | AskDetail
    | Decide
    | EditText
    | Undo
    | Export
    | ComputeAt
    | AskLogLira
    | Compute
    | AskCheck
    | Cancel
    | Refresh
    | Knock
    | Share
    | Address
)

# -------------------------------------------------------------------- parts of answers


class Image(TypedDict):
    """Where an image's pixels begin in the buffer, and its shape."""

    offset: int
    height: int
    width: int
    channels: int


class ValueShown(TypedDict):
    """One value of a table's row: empty if missing, with the median or mode of its class."""

    name: str
    value: str
    usual: str


class Option(TypedDict):
    """One choice of a question; ``hidden`` counts characters that were not sent."""

    text: str
    hidden: int
    label: bool
    probability: float | None


class Likely(TypedDict):
    """One of the classes that the model finds most probable."""

    name: str
    label: bool
    probability: float


class Content(TypedDict):
    """What a sample shows."""

    position: int
    id: str
    label: str
    canary: bool
    text: NotRequired[str]
    hidden: NotRequired[int]
    values: NotRequired[list[ValueShown]]
    hiddenValues: NotRequired[int]
    image: NotRequired[Image]


class Item(Content):
    """One sample of a page: what it shows, its scores, and what is decided."""

    status: str
    score: float | None
    error: float | None
    uncertain: bool
    logLira: float | None
    right: bool | None
    decision: str
    to: str
    note: str
    guess: str
    guessProbability: float | None
    labelProbability: float | None
    options: NotRequired[list[Option]]
    likeliest: NotRequired[list[Likely]]


class Glimpse(Content):
    """A neighbour of an opened sample."""

    options: list[str]
    answer: int
    distance: float


class DecisionStatus(TypedDict):
    """What can be decided and was; ``problem`` says why decisions are in memory alone.

    ``refused`` has a sentence for each decision that makes no sense for these samples,
    ``classes`` all that a sample can be relabelled to, and ``contents`` the word for what of a
    sample a file can hold, such as "texts". ``ofFork`` is said where a sample is to be removed:
    how many were newly memorised in a fork, "" where none was compared.
    """

    choices: list[str]
    refused: dict[str, str]
    classes: list[str]
    contents: str
    undo: int
    decided: int
    problem: str
    ofFork: str


class Place(TypedDict):
    """A sample's place among those that the filter shows, from 1, and its neighbours there."""

    number: int
    total: int
    before: int | None
    after: int | None


class Editing(TypedDict):
    """The words of a sample as edited so far."""

    editable: bool
    edited: NotRequired[bool]
    hasFile: NotRequired[bool]
    words: NotRequired[list[str]]
    problem: NotRequired[str]


class Named(TypedDict):
    """One row or column of an opened sample's table."""

    value: str
    label: str
    marked: bool


class Shadows(TypedDict):
    """Logit gaps of one sample under shadow models, ascending, and their Gaussians."""

    inside: list[float]
    outside: list[float]
    models: tuple[int, int]
    target: float
    fitIn: tuple[float, float]
    fitOut: tuple[float, float]
    logLira: float | None
    checkpoint: str


class Known(TypedDict):
    """What the source knows of an opened sample; ``fixed`` where nothing can be computed.

    ``guess`` is the number of the class that the finished model gives.
    """

    title: str
    checkpoints: list[Named]
    layers: list[Named]
    scores: list[list[float | None]]
    computed: list[list[bool]]
    digits: int
    shadows: Shadows | None
    neighbours: list[Glimpse]
    notes: list[str]
    guess: NotRequired[int | None]
    fixed: NotRequired[bool]


# -------------------------------------------------------------------- what the kernel says


class Said(TypedDict):
    """One sentence: something was done, or why it was not. ``content`` is for a file."""

    type: Literal["said"]
    request: str | None
    done: bool
    text: str
    file: NotRequired[str]
    content: NotRequired[str]
    count: NotRequired[int]
    these: NotRequired[str]


class Page(TypedDict):
    """One page of samples. Its images are in one buffer."""

    type: Literal["page"]
    request: str
    page: int
    pages: int
    first: int
    total: int
    these: str
    scoreName: str
    digits: int
    eta: float | None
    counts: dict[str, int]
    items: list[Item]
    kind: str
    notice: str
    sorts: list[tuple[str, str]]
    classes: list[tuple[int, str]]
    selected: int | None
    decisions: DecisionStatus
    byDecision: dict[str, int]


class Opened(TypedDict):
    """One sample in full; ``more`` if what its source knows follows."""

    type: Literal["opened"]
    request: str
    position: int
    item: Item
    place: Place | None
    scoreName: str
    digits: int
    eta: float | None
    decisions: DecisionStatus
    kept: bool
    more: bool
    edit: Editing


class NotThere(TypedDict):
    """There is no such sample any more."""

    type: Literal["opened"]
    request: str
    position: None


class KnownNow(TypedDict):
    """What the source found out of the opened sample, or why it could not."""

    type: Literal["known"]
    request: str
    known: NotRequired[Known]
    problem: NotRequired[str]


class LogLira(TypedDict):
    """Log-LiRA in the order of the scores, as float32 or (wide) float64 in a buffer."""

    type: Literal["log_lira"]
    version: int
    wide: bool


class Pinned(TypedDict):
    """The curve that stays while others are chosen: of which score, and at which η."""

    checkpoint: str
    layer: str
    metric: str
    eta: float | None


class State(TypedDict, total=False):
    """What restores a view of the dashboard."""

    checkpoint: str
    layer: str
    metric: str
    tau: float
    eta: float
    rule: str
    comparing: bool
    pinned: Pinned | None
    more: bool
    filter: str
    sort: str
    decision: str
    page: int
    opened: int | None


class Heard(TypedDict):
    """The kernel has time, and this is what is picked: checkpoint, layer and score."""

    type: Literal["heard"]
    request: str
    picked: list[str]


class Shared(TypedDict):
    """What was asked for: Python, or a file's name, whose content is a buffer; else why not."""

    type: Literal["shared"]
    request: str
    text: str
    code: NotRequired[str]
    file: NotRequired[str]


class StateNow(TypedDict):
    """The view, for the address of the page."""

    type: Literal["state"]
    state: State


FromKernel = (
    Said | Page | Opened | NotThere | KnownNow | Select | LogLira | Heard | Shared | StateNow
)

# -------------------------------------------------------------------- traits


class ScoresShown(TypedDict):
    """Trait ``_data`` of an explorer: see `explored.Given.wire`. Empty before there are scores."""

    version: int
    title: str
    truth: str
    has_log_lira: bool
    eta_range: tuple[float, float] | None
    note: str
    pick: NotRequired[dict[str, str] | None]
    natural: float | None
    canary_tau: float | None
    below: NotRequired[bytes | None]
    levels: bytes | None
    codes: bytes | None
    values: bytes
    wide: bool
    n_shared: int
    shared: bytes
    ties: bytes


class TruthShown(TypedDict):
    """Trait ``_truth``: the memorised samples at one η."""

    version: int
    eta: float | None
    bits: bytes | None
    hits: bytes | None
    found: NotRequired[tuple[bytes, bytes] | None]


class Compared(TypedDict):
    """ROC of another score, its AUC, and how much that is above the one shown."""

    name: str
    auc: tuple[float, float, float]
    difference: tuple[float, float, float] | None
    points: bytes


class PinnedCurve(TypedDict):
    """Trait ``_pinned``: the pinned ROC. Empty if there is none."""

    title: str
    eta: float | None
    auc: tuple[float, float, float]
    points: bytes


class Late(TypedDict):
    """Trait ``_late``: what takes the kernel longer."""

    version: int
    eta: float | None
    band: bytes | None
    remarks: list[str]
    others: list[Compared]
    failed: str


class Picked(TypedDict):
    """One entry of a picker, in trait ``_choices``."""

    value: str
    label: str
    marked: bool
    usesLayer: bool


class Work(TypedDict):
    """Trait ``_work``: how far the work is."""

    busy: bool
    done: int
    total: int
    what: str
    seconds_left: float | None


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
    >>> mismatch({"type": "compute_at", "layer": 3}, ComputeAt, "the message")
    "the message lacks 'checkpoint'"
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
        parts = [(f"{name}.{key}", arguments[1], value[key]) for key in value] if fits else []
    elif origin in (list, tuple):
        fits = isinstance(value, list | tuple)
        if fits and origin is list:
            arguments = arguments * len(value)
        fits = fits and len(value) == len(arguments)
        found = "" if fits else f"{name} must be a list, not {quoted(value)}"
        parts = [
            (f"{name}[{i}]", arguments[i], part) for i, part in enumerate(value if fits else ())
        ]
    elif kind is not Any:
        words, types = _KINDS[kind]
        fits = isinstance(value, types) and (kind is bool or not isinstance(value, bool))
        found = "" if fits else f"{name} must be {words}, not {quoted(value)}"
    inner = (mismatch(part, each, place) for place, each, part in parts)
    return found or next(filter(None, inner), "")


def _mismatch_of_parts(value: Any, kind: Any, name: str) -> str:
    if not isinstance(value, dict):
        return f"{name} must be an object, not {type(value).__name__}"
    missing = sorted(kind.__required_keys__ - value.keys())
    if missing:
        return f"{name} lacks {missing[0]!r}"
    found = (mismatch(value[key], each, key) for key, each in fields(kind).items() if key in value)
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
    return {get_args(fields(each)["type"])[0]: each for each in get_args(FromPage)}
