/** The sentences and names of the page that say something of samples or scores, each with one spelling. */

export const TIED = "Samples that tie are flagged together or not at all.";
/** Where two AUCs would be compared. */
export const NO_OTHERS =
  "Without samples that are known to be memorised, and others that are not, nobody can say which score finds more.";
export const NO_LAYER = "This score is the same at every layer";
export const BEST = "best time to predict";
export const LAST = "last layer";
/** Where the ROC would be. */
export const NO_ROC = "There is no ROC: nobody knows yet which samples are memorised.";

/** Each filter's word and what it shows. The last two have a tab where the tools for searching are shown, or where they are chosen. */
export const TABS = /** @type {Record<string, [string, string]>} */ ({
  flagged: ["Flagged", "score at most τ"],
  found: ["Found", "flagged, and memorised"],
  "flagged only": ["Flagged only", "flagged, but not memorised"],
  missed: ["Missed", "memorised, but not flagged"],
  "label looks wrong": [
    "Label looks wrong",
    "the model and most of the nearest samples have another class",
  ],
  all: ["All", "every sample"],
  "left alone": ["Left alone", "not flagged, and not known to be memorised"],
  "on the line": ["Too close to call", "score less than two standard errors from τ"],
});
export const SELDOM = ["left alone", "on the line"];

export const ONION =
  "Once this sample is removed and the model trained again, others near it may be memorised that are safe now " +
  "(Carlini et al. 2022): audit again on what is left, and compare how many samples a model memorises.";
