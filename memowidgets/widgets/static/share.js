/** The Share menu: the report as a file, a link where the address holds the view, and Python that restores it. */

import { download } from "./decide.js";
import { bytesOf, html } from "./dom.js";
import { menu } from "./layers.js";
import { tell, whyLate } from "./kernel.js";

const WORKING = "Writing the report …";
const LINK =
  "The address of this page holds checkpoint, layer, score, τ, η, the scores compared, filter, sort, page and the opened sample's position; no sample's id and no token.";

/**
 * Returns an address without a token, wherever it has one.
 * @param {string} address
 */
export function withoutToken(address) {
  const url = new URL(address);
  url.searchParams.delete("token");
  url.username = url.password = "";
  return url.href;
}

/** One menu. */
export class Share {
  /**
   * @param {import("./dom.js").Model} model
   * @param {ReturnType<typeof import("./dom.js").listeners>} ears
   */
  constructor(model, ears) {
    this.model = model;
    this.name = Math.random().toString(36).slice(2, 8);
    /** @type {string[]} */
    const offered = model.get("_share") ?? [];
    this.said = html("p", { class: "mw-sharing-said", role: "status" });
    this.text = html("textarea", {
      class: "mw-words",
      rows: 4,
      readonly: "",
      hidden: true,
      "aria-label": "to copy",
    });
    this.report = this.action("Save the report (HTML)", "report", offered);
    this.python = this.action("Copy as Python", "python", offered);
    this.link = html(
      "button",
      { type: "button", class: "mw-button", title: LINK, hidden: true },
      "Copy a link",
    );
    this.element = menu(
      "Share",
      this.report,
      this.python,
      this.link,
      this.said,
      this.text,
    );
    this.element.classList.add("mw-sharing");
    this.element.hidden = offered.length === 0;
    ears.onModel("msg:custom", (content, buffers) => this.hear(content, buffers));
  }

  /**
   * @param {string} label
   * @param {"report" | "python"} what
   * @param {string[]} offered
   */
  action(label, what, offered) {
    const button = html("button", { type: "button", class: "mw-button" }, label);
    button.hidden = !offered.includes(what);
    button.addEventListener("click", () => {
      this.text.hidden = true;
      const heard = tell(this.model, { type: "share", request: this.name, what });
      this.said.textContent = heard
        ? what === "report"
          ? WORKING
          : ""
        : whyLate(this.model);
    });
    return button;
  }

  /**
   * The page's address follows the view, so that it can be sent.
   * @param {() => void} write  makes it that of the view at once
   */
  offerLink(write) {
    this.link.hidden = this.element.hidden = false;
    this.link.addEventListener("click", () => {
      write();
      this.copy(withoutToken(location.href));
    });
  }

  /**
   * @param {import("./messages.js").FromKernel} content
   * @param {DataView[]} buffers
   */
  hear(content, buffers) {
    if (content.type !== "shared" || content.request !== this.name) return;
    this.said.textContent = content.text;
    if (content.code !== undefined) this.copy(content.code);
    if (content.file !== undefined)
      download(content.file, bytesOf(buffers[0]), "text/html");
  }

  /** @param {string} text */
  async copy(text) {
    this.text.value = text;
    this.text.hidden = false;
    this.text.select();
    try {
      await navigator.clipboard.writeText(text);
      this.said.textContent = "Copied.";
    } catch {
      this.said.textContent =
        "The browser does not let this page copy: copy it from here.";
    }
  }
}
