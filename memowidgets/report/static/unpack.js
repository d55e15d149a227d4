/** What `memowidgets.report.packing` packed, unpacked. */

/**
 * @typedef {object} Parcel
 * @property {any} head
 * @property {(name: string) => Uint8Array} bytes  a copy; empty where there is none of that name
 */

/**
 * @param {string} text  zlib in base64
 * @returns {Promise<Parcel>}
 */
export async function unpack(text) {
  const packed = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const whole = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = new DataView(whole.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(whole.subarray(4, 4 + size)));
  const bytes = (/** @type {string} */ name) => {
    const [start, length] = head.blobs[name] ?? [0, 0];
    return whole.slice(4 + size + start, 4 + size + start + length);
  };
  return { head, bytes };
}

/**
 * The numbers again whose first bytes came first, then their second bytes …
 * @param {Uint8Array} bytes
 * @param {number} size  bytes of a number
 */
export function fromPlanes(bytes, size) {
  const n = bytes.length / size;
  const numbers = new Uint8Array(bytes.length);
  for (let plane = 0; plane < size; plane++) {
    for (let i = 0; i < n; i++) numbers[i * size + plane] = bytes[plane * n + i];
  }
  return numbers.buffer;
}

/**
 * Rising numbers from how many 64-bit numbers each is above the one before.
 * @param {Uint8Array} bytes
 */
export function fromRising(bytes) {
  const halves = new Uint32Array(fromPlanes(bytes, 8));
  let low = 0;
  let high = 0;
  for (let i = 0; i < halves.length; i += 2) {
    low += halves[i];
    high += halves[i + 1] + (low > 0xffffffff ? 1 : 0);
    low >>>= 0;
    high >>>= 0;
    const positive = high >= 0x80000000;
    halves[i] = positive ? low : ~low;
    halves[i + 1] = positive ? high ^ 0x80000000 : ~high;
  }
  return new Float64Array(halves.buffer);
}

/**
 * log-LiRA, as whole thousandths or as it is.
 * @param {Uint8Array} bytes
 * @param {boolean} thousandths
 */
export function fromLogLira(bytes, thousandths) {
  if (!thousandths) return new Float64Array(fromPlanes(bytes, 8));
  return Float64Array.from(new Int32Array(fromPlanes(bytes, 4)), (count) => count / 1000);
}
