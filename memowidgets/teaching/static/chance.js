/** Random numbers that Python draws identically from the same seed. A number depends only on its place. */

/** @param {number} word */
export function mixed(word) {
  let x = word;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return x ^ (x >>> 15);
}

/**
 * Numbers `start` to `start + count` of a stream, between 0 and 1, neither included.
 * @param {number} seed
 * @param {number} start
 * @param {number} count
 */
export function uniforms(seed, start, count) {
  const begin = mixed((seed + 1) | 0);
  const found = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    const word = mixed((Math.imul(start + i + 1, 0x9e3779b1) + begin) | 0);
    found[i] = ((word >>> 0) + 0.5) / 2 ** 32;
  }
  return found;
}

/**
 * Standard normal numbers, as `uniforms` describes. `start` must be even.
 * @param {number} seed
 * @param {number} start
 * @param {number} count
 */
export function normals(seed, start, count) {
  const u = uniforms(seed, start, count + (count % 2));
  for (let i = 0; i < u.length; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(u[i]));
    const angle = 2 * Math.PI * u[i + 1];
    u[i] = radius * Math.cos(angle);
    u[i + 1] = radius * Math.sin(angle);
  }
  return u.subarray(0, count);
}
