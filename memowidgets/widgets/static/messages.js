/** Every message between a page and its kernel. Written by `python -m scripts.jsdoc`. */

/**
 * Bytes of a synced trait or message, in whatever form the host gives them.
 * @typedef {DataView | ArrayBuffer | ArrayBufferView} Bytes
 */

/**
 * Samples that each of two compared scores flags at a budget, or does not.
 * @typedef {object} Part
 * @property {number} budget
 * @property {boolean[]} flagged
 */

/**
 * What narrows and sorts the samples that a page shows. What is absent narrows nothing.
 * @typedef {object} Shown
 * @property {number} [tau]
 * @property {string} [filter]
 * @property {string} [sort]
 * @property {string} [decision]
 * @property {string} [search]
 * @property {Part | null} [part]
 */

/**
 * Samples are wanted; only the answer to the newest request is shown.
 *
 * `open` is the sample that is wanted in full, `at` its place if that is not known.
 * @typedef {object} AskPage
 * @property {number} [tau]
 * @property {string} [filter]
 * @property {string} [sort]
 * @property {string} [decision]
 * @property {string} [search]
 * @property {Part | null} [part]
 * @property {"page"} type
 * @property {string} request
 * @property {number} page
 * @property {number | null} [open]
 * @property {number} [at]
 */

/**
 * One sample is opened; `known` asks for its scores, shadows and neighbours too.
 * @typedef {object} AskDetail
 * @property {number} [tau]
 * @property {string} [filter]
 * @property {string} [sort]
 * @property {string} [decision]
 * @property {string} [search]
 * @property {Part | null} [part]
 * @property {"detail"} type
 * @property {string} request
 * @property {number} position
 * @property {boolean} [known]
 */

/**
 * A decision or a note on these positions; `to` is the new class, for "relabel".
 * @typedef {object} Decide
 * @property {"decide"} type
 * @property {string} [request]
 * @property {number[]} positions
 * @property {string} [decision]
 * @property {string} [note]
 * @property {number} [to]
 */

/**
 * What is said without more.
 *
 * "undo" takes the last decision back, and "export" wants the flagged and the decided samples as
 * CSV (of an inspector alone, the decisions). "compute" computes what is picked, "references"
 * trains reference models and shows their score, "check" trains the models that say which samples
 * are memorised, "cancel" ends any of them, and "refresh" shows what came since. "play" says that
 * time runs where some checkpoints are not scored. "saved" follows traits that were set: unlike
 * them, it raises an error in the page without a kernel.
 * @typedef {object} Plain
 * @property {"undo" | "export" | "compute" | "references" | "check" | "cancel" | "refresh" | "play" | "saved"} type
 * @property {string} [request]
 */

/**
 * Log-LiRA is wanted, because η moves.
 * @typedef {object} AskLogLira
 * @property {"log_lira"} type
 * @property {number} version
 */

/**
 * The page asks whether the kernel has time, and what it shows by then.
 * @typedef {object} Knock
 * @property {"knock"} type
 * @property {string} request
 */

/**
 * The report as a page, or Python that restores this view: `"report"` or `"python"`.
 * @typedef {object} Share
 * @property {"share"} type
 * @property {string} request
 * @property {string} what
 */

/**
 * The scores at these checkpoints are wanted, to play them.
 * @typedef {object} AskMoments
 * @property {"moments"} type
 * @property {string[]} checkpoints
 */

/**
 * What the address of the page says of the view, unchecked.
 * @typedef {object} Address
 * @property {"address"} type
 * @property {string} text
 */

/**
 * A score, layer and checkpoint.
 * @typedef {object} Pick
 * @property {string} checkpoint
 * @property {string} layer
 * @property {string} metric
 */

/**
 * What was asked for, which stays when the scores change: neither part where τ itself was.
 * @typedef {object} Asked
 * @property {number} [count]
 * @property {number} [share]
 */

/**
 * What restores a view of the dashboard.
 * @typedef {object} State
 * @property {string} [checkpoint]
 * @property {string} [layer]
 * @property {string} [metric]
 * @property {string} [axis]
 * @property {number} [tau]
 * @property {Asked} [asked]
 * @property {number} [eta]
 * @property {Pick[]} [comparing]
 * @property {boolean} [more]
 * @property {string} [filter]
 * @property {string} [sort]
 * @property {string} [decision]
 * @property {number} [page]
 * @property {number | null} [selected]
 */

/**
 * Where an image's pixels begin in the buffer, and its shape.
 * @typedef {object} Image
 * @property {number} offset
 * @property {number} height
 * @property {number} width
 * @property {number} channels
 */

/**
 * One value of a table's row: empty if missing, with the median or mode of its class.
 * @typedef {object} ValueShown
 * @property {string} name
 * @property {string} value
 * @property {string} usual
 */

/**
 * One choice of a question; `hidden` counts characters that were not sent.
 * @typedef {object} Option
 * @property {string} text
 * @property {number} hidden
 * @property {boolean} label
 * @property {number | null} probability
 */

/**
 * One of the classes that the model finds most probable.
 * @typedef {object} Likely
 * @property {string} name
 * @property {boolean} label
 * @property {number} probability
 */

/**
 * What a sample shows.
 * @typedef {object} ContentShown
 * @property {number} position
 * @property {string} id
 * @property {string} label
 * @property {boolean} canary
 * @property {string} [text]
 * @property {number} [hidden]
 * @property {ValueShown[]} [values]
 * @property {number} [hiddenValues]
 * @property {Image} [image]
 */

/**
 * One sample of a page: what it shows, its scores, and what is decided.
 * @typedef {object} Item
 * @property {number} position
 * @property {string} id
 * @property {string} label
 * @property {boolean} canary
 * @property {string} [text]
 * @property {number} [hidden]
 * @property {ValueShown[]} [values]
 * @property {number} [hiddenValues]
 * @property {Image} [image]
 * @property {string} status
 * @property {number | null} score
 * @property {number | null} error
 * @property {boolean} uncertain
 * @property {number | null} logLira
 * @property {boolean | null} right
 * @property {[number, number] | null} [support]  of a report, which has no shadow models
 * @property {string} decision
 * @property {string} to
 * @property {string} note
 * @property {string} guess
 * @property {number | null} guessProbability
 * @property {number | null} labelProbability
 * @property {Option[]} [options]
 * @property {boolean} [asks]  whether the options are the sample's own, not the same for all
 * @property {Likely[]} [likeliest]
 * @property {boolean} looksWrong  whether model and neighbours agree on another class than its label
 * @property {number | null} suggested
 * @property {number} answer
 */

/**
 * A neighbour of an opened sample.
 * @typedef {object} Glimpse
 * @property {number} position
 * @property {string} id
 * @property {string} label
 * @property {boolean} canary
 * @property {string} [text]
 * @property {number} [hidden]
 * @property {ValueShown[]} [values]
 * @property {number} [hiddenValues]
 * @property {Image} [image]
 * @property {number} answer
 * @property {number} distance
 */

/**
 * What can be decided and was; `problem` says why decisions are in memory alone.
 * @typedef {object} DecisionStatus
 * @property {string[]} choices
 * @property {Record<string, string>} refused
 * @property {string[]} classes
 * @property {number} undo
 * @property {number} decided
 * @property {string} problem
 */

/**
 * A sample's place among those that the filter shows, from 1, and its neighbours there.
 * @typedef {object} PlaceShown
 * @property {number} number
 * @property {number} total
 */

/**
 * One row or column of an opened sample's table.
 * @typedef {object} Named
 * @property {string} value
 * @property {string} label
 * @property {boolean} marked
 */

/**
 * Logit gaps of one sample under shadow models, ascending, and their Gaussians.
 * @typedef {object} ShadowsShown
 * @property {number[]} inside
 * @property {number[]} outside
 * @property {[number, number]} models
 * @property {number} target
 * @property {[number, number]} fitIn
 * @property {[number, number]} fitOut
 * @property {number | null} logLira
 * @property {string} checkpoint
 * @property {[number, number] | null} [support]  models that memorised it, of those trained on it
 */

/**
 * What the source knows of an opened sample.
 * @typedef {object} KnownShown
 * @property {string} title
 * @property {Named[]} checkpoints
 * @property {Named[]} layers
 * @property {((number | null)[])[]} scores
 * @property {number} digits
 * @property {ShadowsShown | null} shadows
 * @property {Glimpse[]} neighbours
 * @property {string[]} notes
 * @property {number | null} [guess]
 */

/**
 * One sentence: something was done, or why it was not.
 * @typedef {object} Said
 * @property {"said"} type
 * @property {string | null} request
 * @property {boolean} done
 * @property {string} text
 * @property {string} [file]
 * @property {string} [content]
 */

/**
 * One page of samples. Its images are in one buffer.
 * @typedef {object} Page
 * @property {"page"} type
 * @property {string} request
 * @property {number} page
 * @property {number} pages
 * @property {number} first
 * @property {number} total
 * @property {string} scoreName
 * @property {number} digits
 * @property {number | null} eta
 * @property {Record<string, number>} counts
 * @property {Item[]} items  without what is not seen in a list
 * @property {Item[]} [open]  the open one of them, whole
 * @property {boolean} [more]  whether its scores, shadows and neighbours can be asked for
 * @property {string} kind
 * @property {string} notice
 * @property {[string, string][]} sorts
 * @property {DecisionStatus} decisions
 * @property {Record<string, number>} byDecision
 */

/**
 * One sample in full; `more` if what its source knows follows.
 * @typedef {object} Opened
 * @property {"opened"} type
 * @property {string} request
 * @property {number} position
 * @property {Item} item
 * @property {PlaceShown | null} place
 * @property {boolean} more
 */

/**
 * There is no such sample any more.
 * @typedef {object} NotThere
 * @property {"opened"} type
 * @property {string} request
 * @property {null} position
 */

/**
 * What the source found out of the opened sample, or why it could not.
 * @typedef {object} KnownNow
 * @property {"known"} type
 * @property {string} request
 * @property {KnownShown} [known]
 * @property {string} [problem]
 */

/**
 * Log-LiRA in the order of the scores, as float32 or (wide) float64 in a buffer.
 * @typedef {object} LogLira
 * @property {"log_lira"} type
 * @property {number} version
 * @property {boolean} wide
 */

/**
 * The kernel has time, and this is what is picked: checkpoint, layer and score.
 * @typedef {object} Heard
 * @property {"heard"} type
 * @property {string} request
 * @property {string[]} picked
 */

/**
 * What was asked for: Python, or a file's name, whose content is a buffer; else why not.
 * @typedef {object} Shared
 * @property {"shared"} type
 * @property {string} request
 * @property {string} text
 * @property {string} [code]
 * @property {string} [file]
 */

/**
 * The view, for the address of the page.
 * @typedef {object} StateNow
 * @property {"state"} type
 * @property {State} state
 */

/**
 * Trait `_data` of an explorer: see `explored.Given.wire`.
 *
 * Empty before there are scores.
 * @typedef {object} ScoresShown
 * @property {number} version
 * @property {string} title
 * @property {string} truth
 * @property {[number, number] | null} eta_range
 * @property {string} note
 * @property {number | null} natural
 * @property {string} [axis]
 * @property {string[]} [axes]
 * @property {Bytes | null} levels
 * @property {Bytes | null} codes
 * @property {Bytes} values
 * @property {boolean} wide
 * @property {number} n_shared
 * @property {Bytes} shared
 * @property {Bytes} ties
 */

/**
 * Trait `_truth`: the memorised samples at one η.
 * @typedef {object} TruthShown
 * @property {number} version
 * @property {number | null} eta
 * @property {Bytes | null} bits
 * @property {Bytes | null} of_shared
 */

/**
 * One of all scores: its AUC with the interval, if there is one, and whether it is compared.
 * @typedef {object} Area
 * @property {string} name
 * @property {[number, number, number] | null} auc
 * @property {boolean} marked
 */

/**
 * Trait `_compared`: the scores that are compared, the one on show first.
 *
 * Empty before they are there.
 * @typedef {object} ComparedShown
 * @property {number} version
 * @property {number | null} eta
 * @property {string[]} names
 * @property {number} n
 * @property {Bytes[]} ranks  four bytes for each sample: how many score at most as high
 * @property {Bytes | null} bits  who is memorised; null without ground truth
 * @property {string} truly
 * @property {string} said  how much the AUCs of the first two differ
 * @property {string} area  which AUC the areas are, such as the one for the true labels
 * @property {Area[]} areas
 */

/**
 * Trait `_late`: what takes the kernel longer.
 * @typedef {object} Late
 * @property {number} version
 * @property {number | null} eta
 * @property {string[]} remarks
 * @property {string} truly  how many of the memorised samples truly are
 */

/**
 * One entry of a picker, in trait `_choices`.
 * @typedef {object} Picked
 * @property {string} value
 * @property {string} label
 * @property {boolean} marked
 * @property {boolean} usesLayer
 */

/**
 * Lines of Python to copy, unfolded in place.
 * @typedef {object} LinesShown
 * @property {string} title
 * @property {string} said
 * @property {string} code
 */

/**
 * Models that would say more of which samples are memorised.
 * @typedef {object} StepShown
 * @property {string} said  what is trained, what to do instead, or why none can be
 * @property {string} button  "" where nothing can be trained
 * @property {LinesShown | null} lines  what begins a new run, where one is needed
 */

/**
 * Trait `_steps`: what would say more of which samples are memorised.
 *
 * Empty where that is known.
 * @typedef {object} StepsShown
 * @property {string} metric  the score on show
 * @property {boolean} predicts  whether nothing denies that it does
 * @property {StepShown} more
 * @property {StepShown} know
 */

/**
 * One checkpoint on the timeline.
 * @typedef {object} MomentShown
 * @property {string} value
 * @property {string} label
 * @property {number} epoch
 * @property {string} of  digest of its weights
 * @property {number | null} loss  median training loss
 * @property {number | null} held_out  mean loss of the held-out samples
 * @property {string} why  what it means to look here
 * @property {boolean} star  whether it is the best time to predict
 * @property {boolean} computed  whether the score on show is computed there
 * @property {boolean} ready  whether it is, or can be in a moment
 */

/**
 * Trait `_timeline`: the checkpoints in the order of training, none or at least two.
 * @typedef {object} TimelineShown
 * @property {string} series  names what is scored, and how; other scores have another one
 * @property {boolean} ended  whether the last one is the end of training
 * @property {MomentShown[]} moments
 */

/**
 * The scores at one checkpoint, as float32 in the order of the samples in a buffer.
 *
 * NaN for a sample without one. Each score that is compared with them has a buffer too. Or why
 * there are none.
 * @typedef {object} MomentScores
 * @property {"moment"} type
 * @property {string} series
 * @property {string} checkpoint
 * @property {string} problem
 */

/**
 * Which samples are memorised, in the order of the samples, one bit for each in a buffer.
 *
 * No buffer without ground truth.
 * @typedef {object} MomentTruth
 * @property {"memorized"} type
 */

/**
 * Trait `_work`: how far the work is.
 * @typedef {object} Work
 * @property {boolean} busy
 * @property {number} done
 * @property {number} total
 * @property {string} what
 * @property {number | null} seconds_left
 */

/** @typedef {AskPage | AskDetail | Decide | Plain | AskLogLira | Knock | Share | AskMoments | Address} FromPage */

/** @typedef {Said | Page | Opened | NotThere | KnownNow | LogLira | Heard | Shared | StateNow | MomentScores | MomentTruth} FromKernel */

export {};
