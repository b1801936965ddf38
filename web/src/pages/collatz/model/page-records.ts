/** Records in ranges whose numbers are all known exactly. Pure functions. */

import type { ExactChunk } from "./layers";
import type { RangeRecord } from "./records";
import type { Range } from "./view";
import { computeTrajectory } from "./trajectory";

export interface PageRecords {
  delay: RangeRecord[];
  path: RangeRecord[];
}

/**
 * Return the numbers of a range that exceed all smaller ones in it. `chunks` contain all its numbers in ascending
 * order.
 */
export function findRecords(chunks: readonly ExactChunk[], { first, end }: Range): PageRecords {
  const records: PageRecords = { delay: [], path: [] };
  let [steps, bits, peak] = [-1, 0, 0n];
  for (const { start, delays, bits: peakBits } of chunks) {
    const from = Math.max(0, Number(first - start));
    const to = Math.min(delays.length, Number(end - start));
    for (let index = from; index < to; index += 1) {
      const delay = delays[index] as number;
      if (delay > steps) {
        steps = delay;
        records.delay.push({ n: start + BigInt(index), value: BigInt(delay) });
      }
      // only values with as many bits can be greater, so few numbers are walked
      if ((peakBits[index] as number) < bits) continue;
      const n = start + BigInt(index);
      const { peak: value } = computeTrajectory(n);
      if (value <= peak) continue;
      [peak, bits] = [value, peakBits[index] as number];
      records.path.push({ n, value });
    }
  }
  return records;
}
