/** Parser of TCB1, the binary format with facts and columns of GET /api/jobs/{id}/*.bin. */

type Numbers = Uint8Array | Uint16Array | Uint32Array | Int32Array | Float32Array | Float64Array;

const READERS = {
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  i32: Int32Array,
  f32: Float32Array,
  f64: Float64Array,
} as const;

interface PackedHeader {
  facts: Record<string, unknown>;
  columns: { name: string; type: keyof typeof READERS; offset: number; length: number }[];
}

/** Return views of the bytes without copying. Throws an Error for other data. */
export function unpack(data: ArrayBuffer): { facts: Record<string, unknown>; columns: Record<string, Numbers> } {
  const bytes = new Uint8Array(data);
  if (String.fromCharCode(...bytes.subarray(0, 4)) !== "TCB1")
    throw new Error("the data does not contain packed columns");
  const length = new DataView(data).getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length))) as PackedHeader;
  const entries = header.columns.map(({ name, type, offset, length: items }) => [
    name,
    new READERS[type](data, offset, items),
  ]);
  return { facts: header.facts, columns: Object.fromEntries(entries) as Record<string, Numbers> };
}
