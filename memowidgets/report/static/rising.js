/** Scores in the form that the explorer takes from a kernel, made on a page. No DOM. */

/**
 * The samples by their score, ascending, without those that have none.
 * @param {ArrayLike<number>} scores
 */
export function risingOrder(scores) {
  const order = [];
  for (let i = 0; i < scores.length; i++) if (!Number.isNaN(scores[i])) order.push(i);
  return Uint32Array.from(order).sort((a, b) => scores[a] - scores[b]);
}

/**
 * Each value once, in rising order, with how many samples have it.
 * @param {ArrayLike<number>} scores
 * @param {boolean} wide  whether they are float64, not float32
 */
export function packedScores(scores, wide) {
  const order = risingOrder(scores);
  /** @type {number[]} */
  const values = [];
  /** @type {number[]} */
  const counts = [];
  for (const i of order) {
    if (values.length === 0 || scores[i] !== values[values.length - 1]) {
      values.push(scores[i]);
      counts.push(0);
    }
    counts[counts.length - 1] += 1;
  }
  const shared = counts.flatMap((count, i) => (count > 1 ? [i] : []));
  const packed = {
    values: wide ? Float64Array.from(values) : Float32Array.from(values),
    wide,
    n_shared: shared.length,
    shared: Uint32Array.from(shared),
    ties: Uint32Array.from(shared, (i) => counts[i]),
  };
  return { order, counts, shared, packed };
}

/**
 * Which values have a memorised sample at η.
 * @param {{data: {version: number}, counts: number[], shared: number[], rising: Float64Array}} wire
 * @param {number} eta
 */
export function truthOf({ data, counts, shared, rising }, eta) {
  const hits = new Uint32Array(counts.length);
  let at = 0;
  counts.forEach((count, value) => {
    for (const end = at + count; at < end; at++)
      hits[value] += rising[at] >= eta ? 1 : 0;
  });
  return {
    version: data.version,
    eta,
    bits: bitsOf(hits, 1),
    of_shared: Uint32Array.from(shared, (i) => hits[i]),
  };
}

/**
 * One bit for each number, whether it is at least `least`.
 * @param {ArrayLike<number>} numbers
 * @param {number} least
 */
export function bitsOf(numbers, least) {
  const bits = new Uint8Array(Math.ceil(numbers.length / 8));
  for (let i = 0; i < numbers.length; i++)
    if (numbers[i] >= least) bits[i >> 3] |= 128 >> (i & 7);
  return bits;
}
