/** Sentences and names of the front end that stand in more than one place, each with one spelling. */

export const OPTIMISTIC = "This τ was chosen on the samples it is measured on: its rates are optimistic.";
export const WAITING = "Counting anew: log-LiRA is on its way from the kernel.";
export const NO_LAYER = "This score is the same at every layer";
export const BEST = ", best time to predict";
export const OTHER_CELL = "Waiting for the kernel: another cell is running.";
export const OURS = "Waiting for the kernel: it reads the numbers.";
/** Where the ROC would be. */
export const UNCHECKED = "Nobody has checked yet which of these samples are memorised in the end. Shadow models, which trained on others of them, would say so, and draw the ROC here.";
