/** Where words stand beside points, so that no two cover each other: no DOM. */

const TALL = 15; // pixels, of a line of words
const APART = [17, 30, 44]; // from the point, the nearest that is free
const ROUND = 8; // directions that are tried, first above the point
const SIGN = 9; // around each point, which its ring fills

/**
 * Returns the middle of each word. A place that covers a word before it, or one of the points, is
 * taken only where there is none that does not.
 * @param {[number, number][]} points  in pixels
 * @param {number[]} widths  of their words
 * @param {number} width  of the plot
 * @param {number} height
 * @returns {[number, number][]}
 */
export function beside(points, widths, width, height) {
  const signs = points.map(([x, y]) => boxAt(x, y, 2 * SIGN, 2 * SIGN));
  /** @type {Box[]} */
  const taken = [];
  return points.map(([x, y], k) => {
    const tries = around(x, y, widths[k]).map(([px, py]) => {
      const box = boxAt(px, py, widths[k], TALL);
      const covered = [...taken, ...signs].reduce(
        (sum, other) => sum + shared(box, other),
        0,
      );
      const outside =
        box.area - shared(box, boxAt(width / 2, height / 2, width, height));
      return { px, py, box, cost: covered + 4 * outside };
    });
    // a square pixel less is no better place
    const best = tries.reduce((a, b) => (b.cost < a.cost - 1 ? b : a));
    taken.push(best.box);
    return [best.px, best.py];
  });
}

/** @typedef {{left: number, right: number, top: number, bottom: number, area: number}} Box */

/**
 * @param {number} x
 * @param {number} y
 * @param {number} wide
 * @returns {[number, number][]}
 */
function around(x, y, wide) {
  return APART.flatMap((apart) =>
    Array.from({ length: ROUND }, (_, i) => {
      const turn = (2 * Math.PI * i) / ROUND;
      const across = Math.sin(turn) * (apart + wide / 2 - 6);
      return /** @type {[number, number]} */ ([x + across, y - Math.cos(turn) * apart]);
    }),
  );
}

/**
 * @param {number} x
 * @param {number} y
 * @param {number} wide
 * @param {number} tall
 * @returns {Box}
 */
function boxAt(x, y, wide, tall) {
  return {
    left: x - wide / 2,
    right: x + wide / 2,
    top: y - tall / 2,
    bottom: y + tall / 2,
    area: wide * tall,
  };
}

/**
 * The area that two boxes share.
 * @param {Box} a
 * @param {Box} b
 */
function shared(a, b) {
  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
  return Math.max(0, wide) * Math.max(0, tall);
}
