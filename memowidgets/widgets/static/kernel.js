/** Whether a kernel hears a view, by what its host says. */

const BUSY = "Waiting for the kernel: another cell is running.";
export const GONE = "The kernel has stopped. Run this cell again.";
const CUT = "The connection to the kernel is lost. Samples come again once it is back.";
const SAVED = "This is a saved page without a kernel. Run its notebook for the rest.";

/** @typedef {import("./dom.js").Model} Model */

const BETWEEN_LOOKS = 5000; // milliseconds

/**
 * Returns why no kernel will ever hear a view; "" where one may.
 *
 * Jupyter's models have `comm_live`, and ours lives as long as its layout's. The manager of a live
 * page knows the kernel (null once it was shut down), that of a saved page has no such thing. Other
 * hosts, such as marimo, say nothing.
 * @param {Model} model
 */
export function whyUnheard(model) {
  const kernel = model.widget_manager?.kernel;
  const layout = model.get("layout");
  if (layout?.comm_live === false) return kernel === undefined ? SAVED : GONE;
  const stopped = kernel === null || kernel?.isDisposed || kernel?.status === "dead";
  return stopped ? GONE : "";
}

/**
 * Returns what is lacking between a view and its kernel; "" where nothing is.
 * @param {Model} model
 */
function lackOf(model) {
  const state = model.widget_manager?.kernel?.connectionStatus ?? "connected";
  return whyUnheard(model) || (state === "connected" ? "" : CUT);
}

/**
 * Returns why an answer does not come.
 * @param {Model} model
 */
export function whyLate(model) {
  return lackOf(model) || BUSY;
}

/**
 * Sends the kernel a message, or the traits that were set. Traits alone raise no error when the
 * kernel is gone, so a message goes before them.
 * @param {Model} model
 * @param {import("./messages.js").FromPage} [message]
 * @returns {boolean}  whether there may be a kernel to hear it
 */
export function tell(model, message) {
  if (whyUnheard(model) !== "") return false;
  try {
    model.send(message ?? { type: "saved" });
    if (message === undefined) model.save_changes();
    return true;
  } catch {
    return false;
  }
}

/**
 * Looks for the kernel every few seconds, and says when what is lacking has changed.
 * @param {Model} model
 * @param {{later: (action: () => void) => void}} ears  of the view
 * @param {(lack: string) => void} say
 */
export function onLack(model, ears, say) {
  let last = "";
  const timer = setInterval(() => {
    const now = lackOf(model);
    if (now === last) return;
    last = now;
    say(now);
  }, BETWEEN_LOOKS);
  ears.later(() => clearInterval(timer));
}
