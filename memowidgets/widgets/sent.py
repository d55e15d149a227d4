"""What Python sends to a page: messages, and the traits that hold more than a number.

`python -m scripts.jsdoc` writes these types and those of `messages` to ``static/messages.js``, by
which the TypeScript compiler checks the page's code.
"""

# Without `from __future__ import annotations`, under which NotRequired would not be seen.
from typing import Literal, NotRequired, TypedDict

from memowidgets.widgets.messages import State


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


class ContentShown(TypedDict):
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


class Item(ContentShown):
    """One sample of a page: what it shows, its scores, and what is decided."""

    status: str
    score: float | None
    error: float | None
    uncertain: bool
    logLira: float | None
    right: bool | None
    # of a report, which has no shadow models
    support: NotRequired[tuple[int, int] | None]
    decision: str
    to: str
    note: str
    guess: str
    guessProbability: float | None
    labelProbability: float | None
    options: NotRequired[list[Option]]
    # whether the options are the sample's own, not the same for all
    asks: NotRequired[bool]
    likeliest: NotRequired[list[Likely]]
    # whether model and neighbours agree on another class than its label
    looksWrong: bool
    suggested: int | None
    answer: int


class Glimpse(ContentShown):
    """A neighbour of an opened sample."""

    answer: int
    distance: float


class DecisionStatus(TypedDict):
    """What can be decided and was; ``problem`` says why decisions are in memory alone."""

    choices: list[str]
    refused: dict[str, str]
    classes: list[str]
    undo: int
    decided: int
    problem: str


class PlaceShown(TypedDict):
    """A sample's place among those that the filter shows, from 1, and its neighbours there."""

    number: int
    total: int


class Named(TypedDict):
    """One row or column of an opened sample's table."""

    value: str
    label: str
    marked: bool


class ShadowsShown(TypedDict):
    """Logit gaps of one sample under shadow models, ascending, and their Gaussians."""

    inside: list[float]
    outside: list[float]
    models: tuple[int, int]
    target: float
    fitIn: tuple[float, float]
    fitOut: tuple[float, float]
    logLira: float | None
    checkpoint: str
    # models that memorised it, of those trained on it
    support: NotRequired[tuple[int, int] | None]


class KnownShown(TypedDict):
    """What the source knows of an opened sample."""

    title: str
    checkpoints: list[Named]
    layers: list[Named]
    scores: list[list[float | None]]
    digits: int
    shadows: ShadowsShown | None
    neighbours: list[Glimpse]
    notes: list[str]
    guess: NotRequired[int | None]


class Said(TypedDict):
    """One sentence: something was done, or why it was not."""

    type: Literal["said"]
    request: str | None
    done: bool
    text: str
    file: NotRequired[str]
    content: NotRequired[str]


class Page(TypedDict):
    """One page of samples. Its images are in one buffer."""

    type: Literal["page"]
    request: str
    page: int
    pages: int
    first: int
    total: int
    scoreName: str
    digits: int
    eta: float | None
    counts: dict[str, int]
    # without what is not seen in a list
    items: list[Item]
    # the open one of them, whole
    open: NotRequired[list[Item]]
    # whether its scores, shadows and neighbours can be asked for
    more: NotRequired[bool]
    kind: str
    notice: str
    sorts: list[tuple[str, str]]
    decisions: DecisionStatus
    byDecision: dict[str, int]


class Opened(TypedDict):
    """One sample in full; ``more`` if what its source knows follows."""

    type: Literal["opened"]
    request: str
    position: int
    item: Item
    place: PlaceShown | None
    more: bool


class NotThere(TypedDict):
    """There is no such sample any more."""

    type: Literal["opened"]
    request: str
    position: None


class KnownNow(TypedDict):
    """What the source found out of the opened sample, or why it could not."""

    type: Literal["known"]
    request: str
    known: NotRequired[KnownShown]
    problem: NotRequired[str]


class LogLira(TypedDict):
    """Log-LiRA in the order of the scores, as float32 or (wide) float64 in a buffer."""

    type: Literal["log_lira"]
    version: int
    wide: bool


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


class ScoresShown(TypedDict):
    """Trait ``_data`` of an explorer: see ``explored.Given.wire``.

    Empty before there are scores.
    """

    version: int
    title: str
    truth: str
    eta_range: tuple[float, float] | None
    note: str
    natural: float | None
    axis: NotRequired[str]
    axes: NotRequired[list[str]]
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
    of_shared: bytes | None


class Area(TypedDict):
    """One of all scores: its AUC with the interval, if there is one, and whether it is compared."""

    name: str
    auc: tuple[float, float, float] | None
    marked: bool


class ComparedShown(TypedDict):
    """Trait ``_compared``: the scores that are compared, the one on show first.

    Empty before they are there.
    """

    version: int
    eta: float | None
    names: list[str]
    n: int
    # four bytes for each sample: how many score at most as high
    ranks: list[bytes]
    # who is memorised; null without ground truth
    bits: bytes | None
    truly: str
    # how much the AUCs of the first two differ
    said: str
    # which AUC the areas are, such as the one for the true labels
    area: str
    areas: list[Area]


class Late(TypedDict):
    """Trait ``_late``: what takes the kernel longer."""

    version: int
    eta: float | None
    remarks: list[str]
    # how many of the memorised samples truly are
    truly: str


class Picked(TypedDict):
    """One entry of a picker, in trait ``_choices``."""

    value: str
    label: str
    marked: bool
    usesLayer: bool


class LinesShown(TypedDict):
    """Lines of Python to copy, unfolded in place."""

    title: str
    said: str
    code: str


class StepShown(TypedDict):
    """Models that would say more of which samples are memorised."""

    # what is trained, what to do instead, or why none can be
    said: str
    # "" where nothing can be trained
    button: str
    # what begins a new run, where one is needed
    lines: LinesShown | None


class StepsShown(TypedDict):
    """Trait ``_steps``: what would say more of which samples are memorised.

    Empty where that is known.
    """

    # the score on show
    metric: str
    # whether nothing denies that it does
    predicts: bool
    more: StepShown
    know: StepShown


class MomentShown(TypedDict):
    """One checkpoint on the timeline."""

    value: str
    label: str
    epoch: float
    # digest of its weights
    of: str
    # median training loss
    loss: float | None
    # mean loss of the held-out samples
    held_out: float | None
    # what it means to look here
    why: str
    # whether it is the best time to predict
    star: bool
    # whether the score on show is computed there
    computed: bool
    # whether it is, or can be in a moment
    ready: bool


class TimelineShown(TypedDict):
    """Trait ``_timeline``: the checkpoints in the order of training, none or at least two."""

    # names what is scored, and how; other scores have another one
    series: str
    # whether the last one is the end of training
    ended: bool
    moments: list[MomentShown]


class MomentScores(TypedDict):
    """The scores at one checkpoint, as float32 in the order of the samples in a buffer.

    NaN for a sample without one. Each score that is compared with them has a buffer too. Or why
    there are none.
    """

    type: Literal["moment"]
    series: str
    checkpoint: str
    problem: str


class MomentTruth(TypedDict):
    """Which samples are memorised, in the order of the samples, one bit for each in a buffer.

    No buffer without ground truth.
    """

    type: Literal["memorized"]


class Work(TypedDict):
    """Trait ``_work``: how far the work is."""

    busy: bool
    done: float
    total: int
    what: str
    seconds_left: float | None


FromKernel = (
    Said
    | Page
    | Opened
    | NotThere
    | KnownNow
    | LogLira
    | Heard
    | Shared
    | StateNow
    | MomentScores
    | MomentTruth
)
