/**
 * Pixels as bitmap files and their addresses. A canvas would be a layer of its own for each image,
 * and a page of them takes longer to paint than everything else on it.
 */

import { html } from "./dom.js";

/** @typedef {import("./messages.js").Image} Image */

const FILE_HEADER = 14;
const INFO_HEADER = 108; // version 4, the first that knows transparency
const START = FILE_HEADER + INFO_HEADER;
const BITFIELDS = 3;
const SRGB = 0x73524742;
const LARGEST_SHARED = 64; // pixels: larger ones are few to see, and a file of many is unwieldy
const CHUNK = 0x8000; // a call takes only so many arguments

/**
 * A bitmap file of 32 bits a pixel.
 * @param {Uint8Array} rgba  row by row from the top
 * @param {number} height
 * @param {number} width
 */
export function bitmap(rgba, height, width) {
  const file = new Uint8Array(START + 4 * height * width);
  const view = new DataView(file.buffer);
  file.set([0x42, 0x4d]);
  view.setUint32(2, file.length, true);
  view.setUint32(10, START, true);
  view.setUint32(14, INFO_HEADER, true);
  view.setInt32(18, width, true);
  view.setInt32(22, -height, true); // its rows stand as ours do
  view.setUint16(26, 1, true);
  view.setUint16(28, 32, true);
  view.setUint32(30, BITFIELDS, true);
  view.setUint32(34, 4 * height * width, true);
  const masks = [0x000000ff, 0x0000ff00, 0x00ff0000, 0xff000000]; // red, green, blue, opacity
  masks.forEach((mask, i) => view.setUint32(54 + 4 * i, mask, true));
  view.setUint32(70, SRGB, true);
  file.set(rgba, START);
  return file;
}

/**
 * Images under each other, as wide as the widest.
 * @param {Image[]} images  grey (1 channel, or 2 with what is left out), colours (3), and opacity (4)
 * @param {Uint8Array} bytes  of all of them
 */
export function stacked(images, bytes) {
  const width = Math.max(...images.map((image) => image.width));
  const height = images.reduce((sum, image) => sum + image.height, 0);
  const rgba = new Uint8Array(4 * width * height);
  const tops = [];
  let top = 0;
  for (const image of images) {
    for (let row = 0; row < image.height; row++) {
      const start = image.offset + row * image.width * image.channels;
      fillRow(rgba.subarray(4 * width * (top + row)), bytes.subarray(start), image);
    }
    tops.push(top);
    top += image.height;
  }
  return { rgba, height, width, tops };
}

/**
 * @param {Uint8Array} rgba  begins with the row to be filled
 * @param {Uint8Array} bytes  begin with what it holds
 * @param {{width: number, channels: number}} image
 */
function fillRow(rgba, bytes, { width, channels }) {
  for (let i = 0; i < width; i++) {
    for (let c = 0; c < 3; c++) rgba[4 * i + c] = bytes[channels * i + (channels < 3 ? 0 : c)];
    rgba[4 * i + 3] = channels === 4 ? bytes[4 * i + 3] : 255;
  }
}

/**
 * Returns an address that contains the file itself. It needs no request and nothing to revoke
 * later.
 * @param {Uint8Array} file
 */
export function bitmapUrl(file) {
  const native = /** @type {{toBase64?: () => string}} */ (/** @type {unknown} */ (file));
  if (native.toBase64) return `data:image/bmp;base64,${native.toBase64()}`; // many times as fast
  let text = "";
  for (let i = 0; i < file.length; i += CHUNK) {
    text += String.fromCharCode(...file.subarray(i, i + CHUNK));
  }
  return `data:image/bmp;base64,${btoa(text)}`;
}

/**
 * Shown images. The small ones of a page share one file, through one style rule, because every file
 * takes time.
 */
export class Sheets {
  /** @param {Element} root  what the images stand in */
  constructor(root) {
    this.root = root;
    this.name = Math.random().toString(36).slice(2, 8);
    this.made = 0;
    /** By the class that follows it. @type {Map<string, {style: CSSStyleSheet, scope: DocumentOrShadowRoot}>} */
    this.styles = new Map();
  }

  /**
   * The elements that show these images, sharp, and as wide and high as their pixels times the zoom.
   * @param {Image[]} images
   * @param {Uint8Array} bytes
   * @param {(image: Image) => number} zoomOf
   */
  show(images, bytes, zoomOf) {
    const small = images.filter(({ height, width }) => Math.max(height, width) <= LARGEST_SHARED);
    const scope = this.root.getRootNode();
    const can = small.length > 1 && (scope instanceof Document || scope instanceof ShadowRoot);
    const shared = can ? this.share(small, bytes, scope, zoomOf) : new Map();
    return images.map((image) => shared.get(image) ?? alone(image, bytes, zoomOf(image)));
  }

  /**
   * @param {Image[]} images
   * @param {Uint8Array} bytes
   * @param {DocumentOrShadowRoot} scope
   * @param {(image: Image) => number} zoomOf
   * @returns {Map<Image, HTMLElement>}
   */
  share(images, bytes, scope, zoomOf) {
    const { rgba, height, width, tops } = stacked(images, bytes);
    const name = `mw-sheet-${this.name}-${++this.made}`;
    const style = new CSSStyleSheet();
    style.replaceSync(`.${name} { background-image: url(${bitmapUrl(bitmap(rgba, height, width))}); }`);
    scope.adoptedStyleSheets = [...scope.adoptedStyleSheets, style];
    this.styles.set(name, { style, scope });
    const elements = images.map((image, i) => {
      const zoom = zoomOf(image);
      const element = sized(html("div", { class: `mw-image ${name}` }), image, zoom);
      element.style.backgroundSize = `${width * zoom}px ${height * zoom}px`;
      element.style.backgroundPosition = `0 ${-tops[i] * zoom}px`;
      return /** @type {[Image, HTMLElement]} */ ([image, element]);
    });
    return new Map(elements);
  }

  /** Forgets the files of which nothing is shown any more. */
  sweep() {
    for (const [name, { style, scope }] of this.styles) {
      if (this.root.querySelector(`.${name}`) !== null) continue;
      scope.adoptedStyleSheets = scope.adoptedStyleSheets.filter((other) => other !== style);
      this.styles.delete(name);
    }
  }
}

/**
 * An image with a file of its own.
 * @param {Image} image
 * @param {Uint8Array} bytes
 * @param {number} zoom
 */
export function alone(image, bytes, zoom) {
  const { rgba, height, width } = stacked([image], bytes);
  const element = html("img", { class: "mw-image", alt: "", decoding: "sync", draggable: "false" });
  element.src = bitmapUrl(bitmap(rgba, height, width));
  return sized(element, image, zoom);
}

/**
 * @template {HTMLElement} Kind
 * @param {Kind} element
 * @param {Image} image
 * @param {number} zoom
 */
function sized(element, { height, width }, zoom) {
  element.style.width = `${Math.max(1, width * zoom)}px`; // one line of pixels is seen, however long
  element.style.height = `${Math.max(1, height * zoom)}px`;
  if (zoom < 1) element.style.imageRendering = "auto";
  return element;
}
