/** Images: those of a list in one file that they share, any other on a canvas of its own. */

import { html } from "./dom.js";

/** @typedef {import("./messages.js").Image} Image */

const LARGEST = 64; // pixels: larger ones are few to see, and a file of many is unwieldy
const HEADER = 122; // bytes before the pixels of a bitmap file
const FIELDS = [108, 1 | (32 << 16), 3, 0xff, 0xff00, 0xff0000, 0xff000000, 0x73524742]; // 32 bits a pixel, sRGB

/**
 * Copies an image's pixels as red, green, blue and opacity.
 * @param {Image} image  grey (1 channel, or 2 with what is left out), colours (3), and opacity (4)
 * @param {Uint8Array} bytes
 * @param {Uint8Array | Uint8ClampedArray} to
 * @param {number} across  pixels from a row of it to the next
 */
export function copyPixels({ offset, height, width, channels }, bytes, to, across) {
  const [green, blue] = channels < 3 ? [0, 0] : [1, 2];
  for (let row = 0, from = offset; row < height; row++) {
    for (let at = 4 * across * row, end = at + 4 * width; at < end; at += 4, from += channels) {
      to[at] = bytes[from];
      to[at + 1] = bytes[from + green];
      to[at + 2] = bytes[from + blue];
      to[at + 3] = channels === 4 ? bytes[from + 3] : 255;
    }
  }
}

/**
 * Returns what makes the pictures of a list, and the style that they need: one file with all images
 * under each other, because a canvas for each takes longer than all else on the page.
 * @param {Image[]} images
 * @param {Uint8Array} bytes
 * @param {number} room  screen pixels for the longer side of each
 * @param {string} kind  class of these pictures
 */
export function pictures(images, bytes, room, kind) {
  const width = Math.max(...images.map((image) => image.width));
  const height = images.reduce((sum, image) => sum + image.height, 0);
  const file = new Uint8Array(HEADER + 4 * width * height);
  const isSmall = images.every((image) => Math.max(image.height, image.width) <= LARGEST);
  if (images.length === 0 || !isSmall || !("toBase64" in file)) {
    return { style: "", make: (/** @type {Image} */ image) => drawn(image, bytes, room) };
  }
  const [header, depth, fields, ...colours] = FIELDS;
  const words = [file.length, 0, HEADER, header, width, -height, depth, fields, 0, 0, 0, 0, 0, ...colours];
  file.set([0x42, 0x4d]);
  file.set(new Uint8Array(Int32Array.from(words).buffer), 2);
  /** @type {Map<Image, number>} */
  const tops = new Map();
  let top = 0;
  for (const image of images) {
    copyPixels(image, bytes, file.subarray(HEADER + 4 * width * top), width);
    tops.set(image, top);
    top += image.height;
  }
  const address = /** @type {() => string} */ (file.toBase64).call(file);
  return {
    style: `.${kind} { background-image: url(data:image/bmp;base64,${address}); }`,
    make: (/** @type {Image} */ image) => {
      const element = html("div", { class: `mw-image ${kind}` });
      const zoom = sized(element, image, room);
      element.style.backgroundSize = `${width * zoom}px ${height * zoom}px`;
      element.style.backgroundPosition = `0 ${-zoom * /** @type {number} */ (tops.get(image))}px`;
      return element;
    },
  };
}

/**
 * Draws an image on a canvas.
 * @param {Image} image
 * @param {Uint8Array} bytes
 * @param {number} room  screen pixels for its longer side
 */
export function drawn(image, bytes, room) {
  const { height, width } = image;
  const canvas = html("canvas", { class: "mw-image", width, height });
  // a canvas on the graphics card would be a layer of its own for each image
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
  const pixels = new ImageData(width, height);
  copyPixels(image, bytes, pixels.data, width);
  pen.putImageData(pixels, 0, 0);
  sized(canvas, image, room);
  return canvas;
}

/**
 * Makes an element as wide and high as an image's pixels times the zoom that fills the room, and
 * returns the zoom: a whole number for small images, so that all are alike and sharp.
 * @param {HTMLElement} element
 * @param {Image} image
 * @param {number} room
 */
function sized(element, { height, width }, room) {
  const side = Math.max(height, width);
  const zoom = side > room ? room / side : Math.max(1, Math.floor(room / side));
  element.style.width = `${Math.max(1, width * zoom)}px`; // one line of pixels is seen, however long
  element.style.height = `${Math.max(1, height * zoom)}px`;
  if (zoom < 1) element.style.imageRendering = "auto";
  return zoom;
}
