/** Where words stand beside points, so that no two cover each other: no DOM. */

const HALF_LINE = 7.5; // pixels
const HALF_SIGN = 9; // of a point with its ring
const APART = [17, 30, 44, 60]; // from a point to its word: the nearest that is free
const DIRECTIONS = 8; // that are tried, first above the point

/**
 * Returns the middle of each word. Where no place is free, it is above the point.
 * @param {[number, number][]} points  in pixels
 * @param {number[]} widths  of their words
 * @param {number} width  of the plot
 * @param {number} height
 * @returns {[number, number][]}
 */
export function beside(points, widths, width, height) {
  const taken = points.map(([x, y]) => ({ x, y, across: HALF_SIGN, up: HALF_SIGN }));
  return points.map(([x, y], k) => {
    const half = widths[k] / 2;
    const isFree = (/** @type {[number, number]} */ [px, py]) =>
      Math.abs(px - width / 2) <= width / 2 - half &&
      Math.abs(py - height / 2) <= height / 2 - HALF_LINE &&
      taken.every(
        (other) =>
          Math.abs(other.x - px) >= other.across + half ||
          Math.abs(other.y - py) >= other.up + HALF_LINE,
      );
    const [px, py] = around(x, y, half).find(isFree) ?? [x, y - APART[0]];
    taken.push({ x: px, y: py, across: half, up: HALF_LINE });
    return [px, py];
  });
}

/**
 * @param {number} x
 * @param {number} y
 * @param {number} half  of the word's width
 */
function around(x, y, half) {
  return APART.flatMap((apart) =>
    Array.from({ length: DIRECTIONS }, (_, i) => {
      const turn = (2 * Math.PI * i) / DIRECTIONS;
      const across = Math.sin(turn) * (apart + half - 6);
      return /** @type {[number, number]} */ ([x + across, y - Math.cos(turn) * apart]);
    }),
  );
}
