/** Images, each on a canvas of its own. */

import { html } from "./dom.js";

/** @typedef {import("./messages.js").Image} Image */

/**
 * How many screen pixels an image's pixel is wide: a whole number for small images, so that
 * all are alike.
 * @param {number} side  the longer side of the image
 * @param {number} room
 */
export function zoomFor(side, room) {
  return side > room ? room / side : Math.max(1, Math.floor(room / side));
}

/**
 * Returns the pixels of an image as red, green, blue and opacity.
 * @param {Image} image  grey (1 channel, or 2 with what is left out), colours (3), and opacity (4)
 * @param {Uint8Array} bytes
 */
export function pixelsOf({ offset, height, width, channels }, bytes) {
  const pixels = new Uint8ClampedArray(4 * height * width).fill(255);
  for (let i = 0, at = offset; i < pixels.length; i += 4, at += channels) {
    for (let c = 0; c < (channels === 4 ? 4 : 3); c++) pixels[i + c] = bytes[at + (channels < 3 ? 0 : c)];
  }
  return pixels;
}

/**
 * Draws an image, sharp, as wide and high as its pixels times the zoom that fills the room.
 * @param {Image} image
 * @param {Uint8Array} bytes
 * @param {number} room  screen pixels for its longer side
 */
export function drawn(image, bytes, room) {
  const { height, width } = image;
  const canvas = html("canvas", { class: "mw-image", width, height });
  // a canvas on the graphics card would be a layer of its own for each image
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
  pen.putImageData(new ImageData(pixelsOf(image, bytes), width, height), 0, 0);
  const zoom = zoomFor(Math.max(height, width), room);
  canvas.style.width = `${Math.max(1, width * zoom)}px`; // one line of pixels is seen, however long
  canvas.style.height = `${Math.max(1, height * zoom)}px`;
  if (zoom < 1) canvas.style.imageRendering = "auto";
  return canvas;
}
