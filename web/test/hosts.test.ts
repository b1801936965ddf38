import { expect, test } from "vitest";
import { formatPercent } from "../src/lib/format";
import type { Worker } from "../src/lib/api";
import {
  describeCards,
  describeClock,
  listCordons,
  formatLabels,
  formatLoad,
  hostState,
  listVersions,
} from "../src/pages/cluster/model/hosts";

const plain = (text: string | undefined) => text?.replaceAll("\u202f", " ");

test("a host is online, draining or lost", () => {
  expect(hostState({ live: true, draining: false })).toBe("online");
  expect(hostState({ live: true, draining: true })).toBe("draining");
  expect(hostState({ live: false, draining: true })).toBe("lost");
});

test.each([
  [0.0004, "within 1 ms", false],
  [0.5, "500 ms ahead", false],
  [-0.501, "501 ms behind", true],
  [3600, "1 h ahead", true],
  [-3600, "1 h behind", true],
])("a clock that is %s s off is %s", (offset, text, wrong) => {
  const found = describeClock({ clock_offset_seconds: offset });
  expect([plain(found?.text), found?.isWrong]).toEqual([text, wrong]);
});

test("what is not known has no words", () => {
  expect(describeClock({ clock_offset_seconds: null })).toBeUndefined();
  expect(formatLoad({ load1: null, cpus: 8 })).toBeUndefined();
  expect(listVersions({ versions: {} }, "1.0")).toEqual([]);
  expect([formatLoad({ load1: 3.14, cpus: 8 }), formatLoad({ load1: 12.4, cpus: null })]).toEqual(["3.1 of 8", "12"]);
});

test("ours stands first, and differs where one worker has another version than the coordinators", () => {
  const versions = { numba: ["0.62.1"], threads_cluster: ["1.0", "1.1"], driver: [] };
  expect(listVersions({ versions }, "1.1")).toEqual([
    { name: "cluster", text: "1.0, 1.1", isDifferent: true },
    { name: "numba", text: "0.62.1", isDifferent: false },
  ]);
  expect(listVersions({ versions: { threads_cluster: ["1.1"] } }, "1.1")[0]?.isDifferent).toBe(false);
  expect(listVersions({ versions: { threads_cluster: ["1.0"] } }, undefined)[0]?.isDifferent, "nobody knows").toBe(
    false,
  );
});

test("why workers of a host take nothing new is told of those that live there", () => {
  const worker = (id: string, cordoned: string, live = true) => ({ id, cordoned, live }) as Worker;
  const all = [worker("gpu-1", "Xid 79"), worker("gpu-2", "ECC", false), worker("runner-9", "disk is full")];
  expect(listCordons({ workers: ["gpu-1", "gpu-2"] }, all)).toEqual(["gpu-1: Xid 79"]);
});

test("labels that the operator gave come apart from those that runners say", () => {
  expect(formatLabels({ labels: ["ssd", "trusted"], given_labels: ["eu", "trusted"] })).toEqual({
    assigned: "eu, trusted",
    reported: "ssd",
  });
  expect(formatLabels({ labels: [], given_labels: [] })).toEqual({ assigned: "", reported: "" });
});

test("GPUs that no worker has are named, with their use where it is known", () => {
  const cards = [
    { card: "card0", name: "Intel GPU 0x9a49" },
    { card: "card1", name: "AMD Instinct MI210", utilization_ratio: 0.37 },
  ];
  expect(describeCards({ cards })).toEqual([
    "card0: Intel GPU 0x9a49",
    `card1: AMD Instinct MI210, ${formatPercent(0.37)} used`,
  ]);
});
