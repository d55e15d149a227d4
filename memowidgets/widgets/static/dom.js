/** Shared functions of the front ends to build and update a page. Text enters it as text, never as HTML. */

/**
 * @typedef {object} Model  the part of anywidget's model that is used here
 * @property {(name: string) => any} get
 * @property {(name: string, value: any) => void} set
 * @property {() => void} save_changes
 * @property {(content: import("./messages.js").FromPage) => void} send
 * @property {(name: string, handler: (...args: any[]) => void) => void} on
 * @property {(name: string, handler: (...args: any[]) => void) => void} off
 * @property {Manager} [widget_manager]  where the host has one
 */

/**
 * @typedef {object} Manager  the part of Jupyter's manager of widgets that is used here
 * @property {{status: string, connectionStatus: string, isDisposed: boolean} | null} [kernel]
 */

/** @typedef {Record<string, string | number | boolean | null>} Attributes */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Makes an HTML element. An attribute that is true is set without a value, and one that is false is
 * left out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function html(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

/**
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Attributes} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

/**
 * Sets what is not so already: the browser styles an element again even for the same value.
 * @param {Element} element
 * @param {Attributes} attributes
 */
export function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    const text =
      value === null || value === false ? null : value === true ? "" : String(value);
    if (text === null) element.removeAttribute(name);
    else if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

/**
 * Writes a text unless it stands there already: the browser lays out even the same text again.
 * @param {Element} element
 * @param {string} text
 */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Returns the bytes of a synced trait or message in a new buffer, whatever form the host gives
 * them.
 * @param {import("./messages.js").Bytes} data
 * @returns {ArrayBuffer}
 */
export function bytesOf(data) {
  if (data instanceof ArrayBuffer) return data.slice(0);
  const start = data.byteOffset;
  return /** @type {ArrayBuffer} */ (data.buffer.slice(start, start + data.byteLength));
}

/**
 * Listeners of one view, which are removed together when the view goes.
 * @param {Model} model
 */
export function listeners(model) {
  /** @type {(() => void)[]} */
  const undo = [];
  return {
    /**
     * @param {string} name
     * @param {(...args: any[]) => void} handler
     */
    onModel(name, handler) {
      model.on(name, handler);
      undo.push(() => model.off(name, handler));
    },
    /**
     * @param {EventTarget} target
     * @param {string} name
     * @param {(event: any) => void} handler
     */
    on(target, name, handler) {
      target.addEventListener(name, handler);
      undo.push(() => target.removeEventListener(name, handler));
    },
    /** @param {() => void} action */
    later(action) {
      undo.push(action);
    },
    clear() {
      for (const action of undo.splice(0)) action();
    },
  };
}

/**
 * Calls back with the width of an element whenever it changes, never for a hidden one. Returns what
 * ends that.
 * @param {Element} element
 * @param {(width: number) => void} action
 */
export function onWidth(element, action) {
  let last = 0;
  let frame = 0;
  const tell = () => {
    const width = element.clientWidth;
    if (width === last) return;
    last = width;
    if (width > 0) action(width);
  };
  const observer = new ResizeObserver(() => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(tell);
  });
  observer.observe(element);
  return () => {
    cancelAnimationFrame(frame);
    observer.disconnect();
  };
}

/**
 * Makes a row of buttons of which one is chosen. For the keyboard it is a radio group.
 * @param {string} label
 * @param {{value: string, label: string, title?: string}[]} choices
 * @param {(value: string) => void} choose
 */
export function segments(label, choices, choose) {
  const buttons = choices.map((choice) =>
    html(
      "button",
      {
        type: "button",
        role: "radio",
        class: "mw-segment",
        title: choice.title ?? null,
      },
      choice.label,
    ),
  );
  const group = html("div", {
    role: "radiogroup",
    "aria-label": label,
    class: "mw-segments",
  });
  group.append(...buttons);
  /** @param {string} value */
  const show = (value) => {
    const chosen = Math.max(
      0,
      choices.findIndex((choice) => choice.value === value),
    );
    buttons.forEach((button, i) => {
      button.setAttribute("aria-checked", String(choices[i].value === value));
      button.tabIndex = i === chosen ? 0 : -1;
    });
  };
  /** @param {number} i */
  const pick = (i) => {
    show(choices[i].value);
    buttons[i].focus();
    choose(choices[i].value);
  };
  buttons.forEach((button, i) => {
    button.addEventListener("click", () => pick(i));
    button.addEventListener("keydown", (event) => {
      const step = arrowStep(event.key);
      if (step === 0) return;
      event.preventDefault();
      pick((i + step + buttons.length) % buttons.length);
    });
  });
  return { group, show };
}

/**
 * Returns the element that has the focus in the same document or shadow root as `element`.
 * @param {Element} element
 */
export function focused(element) {
  const scope = element.getRootNode();
  const found =
    scope instanceof Document || scope instanceof ShadowRoot
      ? scope.activeElement
      : null;
  return /** @type {HTMLElement | null} */ (found);
}

/**
 * Returns +1 for the right and up arrows, −1 for the left and down arrows, else 0.
 * @param {string} key
 */
export function arrowStep(key) {
  if (key === "ArrowRight" || key === "ArrowUp") return 1;
  return key === "ArrowLeft" || key === "ArrowDown" ? -1 : 0;
}

const DARK = '.dark, .vscode-dark, [theme="dark"], [data-theme="dark"]';
const LIGHT = '.light, .vscode-light, [theme="light"], [data-theme="light"]';
const THEMED = [
  "class",
  "theme",
  "data-theme",
  "data-jp-theme-light",
  "data-jp-theme-name",
];

/** Whether the page is dark, by its host or else by the system. */
function isDark() {
  const { body, documentElement: page } = document;
  const { jpThemeLight } = body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "false";
  const says = (/** @type {string} */ selector) =>
    body.matches(selector) || page.matches(selector);
  return (
    says(DARK) || (!says(LIGHT) && matchMedia("(prefers-color-scheme: dark)").matches)
  );
}

/**
 * Calls an action whenever the host or the system may have changed its theme.
 * @param {ReturnType<typeof listeners>} ears
 * @param {() => void} action
 */
export function onTheme(ears, action) {
  const observer = new MutationObserver(action);
  for (const host of [document.body, document.documentElement]) {
    observer.observe(host, { attributes: true, attributeFilter: THEMED });
  }
  ears.later(() => observer.disconnect());
  ears.on(matchMedia("(prefers-color-scheme: dark)"), "change", action);
}

/**
 * Gives an element the theme of the page, and follows it. A selector cannot do this: a host may put
 * a view into a shadow root, as marimo does, which hides the page from style sheets.
 * @param {Element} element
 * @param {ReturnType<typeof listeners>} ears
 */
function followTheme(element, ears) {
  const follow = () => element.classList.toggle("mw-dark", isDark());
  onTheme(ears, follow);
  follow();
}

const KEYS_ARE_OURS = "data-lm-suppress-shortcuts";

/**
 * Makes the root of a view. JupyterLab leaves the keyboard to everything inside an element with
 * this mark. Notebook 7 looks for the mark only at the element that has the focus, and otherwise
 * runs its own shortcuts.
 * @param {HTMLElement} el
 * @param {string} name
 * @param {string} label
 * @param {ReturnType<typeof listeners>} ears  of the view
 */
export function root(el, name, label, ears) {
  const element = html("section", {
    class: `mw mw-${name}`,
    "aria-label": label,
    [KEYS_ARE_OURS]: "true",
  });
  element.addEventListener("focusin", ({ target }) => {
    if (target instanceof Element) target.setAttribute(KEYS_ARE_OURS, "true");
  });
  followTheme(element, ears);
  el.append(element);
  return element;
}

/**
 * Hides the still picture that stands in for a view, until the view goes. Returns the sheet that
 * does so.
 * @param {Model} model
 * @param {ReturnType<typeof listeners>} ears  of the view
 */
export function hideStandIn(model, ears) {
  const still = `.${model.get("_stands_in")}`;
  const output = `.jp-OutputArea-child:has(${still})`; // which has a prompt and a margin
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`${still}, ${output} { display: none }`);
  document.adoptedStyleSheets.push(sheet);
  ears.later(() => {
    const others = document.adoptedStyleSheets.filter((other) => other !== sheet);
    document.adoptedStyleSheets = others;
  });
  return sheet;
}

/**
 * Empties the model of a widget that was closed, which JupyterLab keeps as long as its kernel runs.
 * @param {{model: Model}} context
 */
export function emptied({ model }) {
  const empty = () => {
    for (const name of ["_esm", "_css"]) model.set(name, "");
    for (const name of ["_data", "_truth", "_late", "_compared"]) model.set(name, {});
  };
  return () => setTimeout(empty); // its views go first
}
