/** How often something is done or asked while what is shown changes. */

/**
 * Runs `action` at most once every `wait` milliseconds, and once more after the last call.
 * @param {() => void} action
 * @param {number} wait
 */
export function throttle(action, wait) {
  /** @type {ReturnType<typeof setTimeout> | null} */
  let timer = null;
  let last = -Infinity;
  const fire = () => {
    timer = null;
    last = performance.now();
    action();
  };
  const run = () => {
    if (timer !== null) return;
    const rest = wait - (performance.now() - last);
    if (rest <= 0) fire();
    else timer = setTimeout(fire, rest);
  };
  run.cancel = () => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
  };
  return run;
}

const LOST = 8000; // milliseconds, after which an answer is not waited for

/**
 * A question to the kernel that changes with what is shown. One is on its way at a time: what was
 * passed over meanwhile is never asked.
 */
export class Question {
  /**
   * @param {string} name  of the view
   * @param {(request: string) => boolean} send  asks what is to be known now; whether there is a kernel to hear it
   */
  constructor(name, send) {
    this.name = name;
    this.send = send;
    this.request = "";
    this.asked = 0;
    this.since = -Infinity;
    this.again = false;
  }

  /** Asks once for all changes of this moment. */
  ask() {
    this.again = true;
    queueMicrotask(() => this.next());
  }

  next() {
    if (!this.again || performance.now() - this.since < LOST) return;
    this.again = false;
    this.request = `${this.name}-${++this.asked}`;
    this.since = performance.now();
    if (!this.send(this.request)) this.since = -Infinity;
  }

  /** Asks although an answer is still to come: there was nobody to give it. */
  askAnew() {
    this.since = -Infinity;
    this.ask();
  }

  answered() {
    this.since = -Infinity;
    this.next();
  }
}
