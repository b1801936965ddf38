/** Positions in a layer, as close as possible to the desired ones without overlap. Pure functions. */

/**
 * Return positions with the least squared distance from `wishes`, in which each position is at least `gaps[i]` after
 * the previous one. Overlapping neighbors form a block around their mean (pool adjacent violators algorithm).
 */
export function spacePositions(wishes: readonly number[], gaps: readonly number[]): number[] {
  const shifts: number[] = [];
  let shift = 0;
  for (let index = 0; index < wishes.length; index += 1) {
    shift += index ? (gaps[index] as number) : 0;
    shifts.push(shift);
  }
  const blocks: { mean: number; count: number }[] = [];
  for (const [index, wish] of wishes.entries()) {
    let block = { mean: wish - (shifts[index] as number), count: 1 };
    for (let last = blocks.at(-1); last && last.mean > block.mean; last = blocks.at(-1)) {
      blocks.pop();
      const count = last.count + block.count;
      block = { mean: (last.mean * last.count + block.mean * block.count) / count, count };
    }
    blocks.push(block);
  }
  const positions: number[] = [];
  for (const { mean, count } of blocks)
    for (let member = 0; member < count; member += 1) positions.push(mean + (shifts[positions.length] as number));
  return positions;
}
