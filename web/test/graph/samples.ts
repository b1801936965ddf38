/** Sample graphs for tests. */

import type { Item } from "../../src/graph/structure";

/** Return layers of equal size, in which each item depends on the whole previous layer. */
export function diamonds(layers: number, wide: number): Item[] {
  const layer = (at: number) => Array.from({ length: wide }, (_, each) => `a${at}-${each}`);
  return Array.from({ length: layers }, (_, at) => at).flatMap((at) =>
    layer(at).map((id) => ({ id, type: "command", dependencies: at ? layer(at - 1) : [] })),
  );
}

/** Return one first item, parallel chains after it, and a last item that depends on all chains. */
export function chains(count: number, length: number): Item[] {
  const inner = Array.from({ length: count }, (_, chain) =>
    Array.from({ length }, (_, at) => ({
      id: `c${chain}-${at}`,
      type: `step${at}`,
      dependencies: [at ? `c${chain}-${at - 1}` : "first"],
    })),
  ).flat();
  const ends = Array.from({ length: count }, (_, chain) => `c${chain}-${length - 1}`);
  return [
    { id: "first", type: "command", dependencies: [] },
    ...inner,
    { id: "last", type: "command", dependencies: ends },
  ];
}

/** Return items that each depend on up to three of the previous forty; a seed always yields the same graph. */
export function tangle(size: number, seed = 1): Item[] {
  let state = seed;
  const random = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  return Array.from({ length: size }, (_, at) => ({
    id: `t${at}`,
    type: ["collatz", "thread", "command"][random(3)] as string,
    dependencies: at
      ? [...new Set(Array.from({ length: random(4) }, () => `t${at - 1 - random(Math.min(40, at))}`))]
      : [],
  }));
}
