/** A stand-in for the model that anywidget gives a view. There is no kernel: the page itself answers. */

/** @typedef {(...args: any[]) => void} Handler */

export class StandIn {
  /**
   * @param {Record<string, any>} traits
   * @param {(content: import("../../widgets/static/messages.js").FromPage) => {content: import("../../widgets/static/messages.js").FromKernel, buffers: ArrayBuffer[]} | null} answer
   */
  constructor(traits, answer) {
    this.traits = traits;
    this.answer = answer;
    /** @type {Map<string, Set<Handler>>} */
    this.handlers = new Map();
  }

  /** @param {string} name */
  get(name) {
    return this.traits[name];
  }

  /**
   * @param {string} name
   * @param {any} value
   */
  set(name, value) {
    if (this.traits[name] === value) return;
    this.traits[name] = value;
    this.emit(`change:${name}`);
  }

  /** Does nothing: there is no kernel to save the traits for. */
  save_changes() {}

  /**
   * Answers once the view is done, as a kernel would.
   * @param {import("../../widgets/static/messages.js").FromPage} content
   */
  send(content) {
    const found = this.answer(content);
    if (found !== null)
      queueMicrotask(() => this.emit("msg:custom", found.content, found.buffers));
  }

  /**
   * @param {string} name
   * @param {Handler} handler
   */
  on(name, handler) {
    const known = this.handlers.get(name) ?? new Set();
    known.add(handler);
    this.handlers.set(name, known);
  }

  /**
   * @param {string} name
   * @param {Handler} handler
   */
  off(name, handler) {
    this.handlers.get(name)?.delete(handler);
  }

  /**
   * @param {string} name
   * @param {...any} args
   */
  emit(name, ...args) {
    for (const handler of [...(this.handlers.get(name) ?? [])]) handler(...args);
  }
}
