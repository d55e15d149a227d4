/** Pictures: images under each other in one file, because a canvas for each takes longer than all else on a page. */

import { html } from "./dom.js";

/** @typedef {import("./messages.js").Image} Image */

const HEADER = 122; // bytes before the pixels of a bitmap file
const FORMAT = [
  1 | (32 << 16),
  3,
  0,
  0,
  0,
  0,
  0,
  0xff,
  0xff00,
  0xff0000,
  0xff000000,
  0x73524742,
]; // 32 bits a pixel, sRGB

/**
 * Returns an element for each image, as wide and high as its pixels times the zoom that fills the room: a
 * whole number for small images, so that they are sharp.
 * @param {Image[]} images  not empty
 * @param {Uint8Array} bytes
 * @param {number} room  screen pixels for the longer side of an image
 * @param {string} [kind]  class that shows the file; without one each element has it in its own style
 */
export function pictures(images, bytes, room, kind = "") {
  const across = Math.max(...images.map(({ width }) => width));
  const down = images.reduce((sum, { height }) => sum + height, 0);
  const file = new Uint8Array(HEADER + 4 * across * down);
  file.set([0x42, 0x4d]);
  file.set(
    new Uint8Array(
      Int32Array.of(file.length, 0, HEADER, HEADER - 14, across, -down, ...FORMAT)
        .buffer,
    ),
    2,
  );
  let top = 0;
  const elements = images.map((image) => {
    const { height, width } = image;
    copyPixels(image, bytes, file.subarray(HEADER + 4 * across * top), across);
    const element = html("div", { class: `mw-image ${kind}` });
    const side = Math.max(height, width);
    const zoom = side > room / 2 ? room / side : Math.floor(room / side);
    Object.assign(element.style, {
      width: `${Math.max(1, width * zoom)}px`, // one line of pixels is seen, however long
      height: `${Math.max(1, height * zoom)}px`,
      backgroundSize: `${across * zoom}px ${down * zoom}px`,
      backgroundPosition: `0 ${-top * zoom}px`,
      imageRendering: Number.isInteger(zoom) ? "" : "auto",
    });
    top += height;
    return element;
  });
  const {
    toBase64 = () =>
      btoa(Array.from(file, (byte) => String.fromCharCode(byte)).join("")),
  } = /** @type {any} */ (file);
  const shown = `url(data:image/bmp;base64,${toBase64.call(file)})`;
  if (kind === "")
    for (const element of elements) element.style.backgroundImage = shown;
  return { elements, style: `.${kind} { background-image: ${shown}; }` };
}

/**
 * Copies an image's pixels as red, green, blue and opacity.
 * @param {Image} image  grey (1 channel, or 2 with what is left out), colours (3), and opacity (4)
 * @param {Uint8Array} bytes
 * @param {Uint8Array} to
 * @param {number} across  pixels from a row of it to the next
 */
export function copyPixels({ offset, height, width, channels }, bytes, to, across) {
  const [green, blue] = channels < 3 ? [0, 0] : [1, 2];
  for (let row = 0, from = offset; row < height; row++) {
    for (
      let at = 4 * across * row, end = at + 4 * width;
      at < end;
      at += 4, from += channels
    ) {
      to[at] = bytes[from];
      to[at + 1] = bytes[from + green];
      to[at + 2] = bytes[from + blue];
      to[at + 3] = channels === 4 ? bytes[from + 3] : 255;
    }
  }
}
