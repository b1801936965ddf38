/** Records in ranges whose numbers are all known exactly. Pure functions. */

import type { Exact } from "./layers";
import type { RangeRecord } from "./records";
import type { Range } from "./view";
import { walk } from "./walk";

export interface PageRecords {
  delay: RangeRecord[];
  path: RangeRecord[];
}

/**
 * Return the numbers of a range that exceed all smaller ones in it. `chunks` contain all its numbers in ascending
 * order.
 */
export function recordsOf(chunks: readonly Exact[], { first, end }: Range): PageRecords {
  const found: PageRecords = { delay: [], path: [] };
  let [steps, bits, peak] = [-1, 0, 0n];
  for (const { start, delays, bits: wide } of chunks) {
    const from = Math.max(0, Number(first - start));
    const to = Math.min(delays.length, Number(end - start));
    for (let place = from; place < to; place += 1) {
      const own = delays[place] as number;
      if (own > steps) {
        steps = own;
        found.delay.push({ n: start + BigInt(place), value: BigInt(own) });
      }
      // only values with as many bits can be greater, so few numbers are walked
      if ((wide[place] as number) < bits) continue;
      const n = start + BigInt(place);
      const { peak: value } = walk(n);
      if (value <= peak) continue;
      [peak, bits] = [value, wide[place] as number];
      found.path.push({ n, value });
    }
  }
  return found;
}
