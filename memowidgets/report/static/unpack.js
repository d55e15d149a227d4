/** Unpacks what `pack` of page.py packed. */

/**
 * @param {string} text  zlib in base64
 * @returns {Promise<any>}  the values, with a Uint8Array wherever Python had bytes
 */
export async function unpack(text) {
  const letters = atob(text.trim());
  const packed = new Uint8Array(letters.length); // Uint8Array.from takes ten times as long
  for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  const stream = new Blob([packed])
    .stream()
    .pipeThrough(new DecompressionStream("deflate"));
  const whole = new Uint8Array(await new Response(stream).arrayBuffer());
  const start = 4 + new DataView(whole.buffer).getUint32(0, true);
  const head = new TextDecoder().decode(whole.subarray(4, start));
  return JSON.parse(head, (_, value) => {
    if (!Array.isArray(value?.$bytes)) return value;
    const [from, length] = value.$bytes;
    return whole.slice(start + from, start + from + length);
  });
}

/** Reads log-LiRA, sent as whole thousandths. @param {Uint8Array} bytes */
export function fromLogLira(bytes) {
  const counts = new Int32Array(/** @type {ArrayBuffer} */ (bytes.buffer));
  return Float64Array.from(counts, (count) => count / 1000);
}
