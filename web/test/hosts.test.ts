import { expect, test } from "vitest";
import { formatPercent } from "../src/lib/format";
import type { Worker } from "../src/lib/api";
import { cardsOf, clockOf, cordonsOf, labelsOf, loadOf, stateOf, versionsOf } from "../src/pages/cluster/model/hosts";

const plain = (text: string | undefined) => text?.replaceAll("\u202f", " ");

test("a host is online, draining or lost", () => {
  expect(stateOf({ live: true, draining: false })).toBe("online");
  expect(stateOf({ live: true, draining: true })).toBe("draining");
  expect(stateOf({ live: false, draining: true })).toBe("lost");
});

test.each([
  [0.0004, "within 1 ms", false],
  [0.5, "500 ms ahead", false],
  [-0.501, "501 ms behind", true],
  [3600, "1 h ahead", true],
  [-3600, "1 h behind", true],
])("a clock that is %s s off is %s", (offset, text, wrong) => {
  const found = clockOf({ clock_offset_seconds: offset });
  expect([plain(found?.text), found?.wrong]).toEqual([text, wrong]);
});

test("what is not known has no words", () => {
  expect(clockOf({ clock_offset_seconds: null })).toBeUndefined();
  expect(loadOf({ load1: null, cpus: 8 })).toBeUndefined();
  expect(versionsOf({ versions: {} }, "1.0")).toEqual([]);
  expect([loadOf({ load1: 3.14, cpus: 8 }), loadOf({ load1: 12.4, cpus: null })]).toEqual(["3.1 of 8", "12"]);
});

test("ours stands first, and differs where one worker has another version than the coordinators", () => {
  const versions = { numba: ["0.62.1"], threads_cluster: ["1.0", "1.1"], driver: [] };
  expect(versionsOf({ versions }, "1.1")).toEqual([
    { name: "cluster", text: "1.0, 1.1", other: true },
    { name: "numba", text: "0.62.1", other: false },
  ]);
  expect(versionsOf({ versions: { threads_cluster: ["1.1"] } }, "1.1")[0]?.other).toBe(false);
  expect(versionsOf({ versions: { threads_cluster: ["1.0"] } }, undefined)[0]?.other, "nobody knows").toBe(false);
});

test("why workers of a host take nothing new is told of those that live there", () => {
  const worker = (id: string, cordoned: string, live = true) => ({ id, cordoned, live }) as Worker;
  const all = [worker("gpu-1", "Xid 79"), worker("gpu-2", "ECC", false), worker("runner-9", "disk is full")];
  expect(cordonsOf({ workers: ["gpu-1", "gpu-2"] }, all)).toEqual(["gpu-1: Xid 79"]);
});

test("labels that the operator gave come apart from those that runners say", () => {
  expect(labelsOf({ labels: ["ssd", "trusted"], given_labels: ["eu", "trusted"] })).toEqual({
    given: "eu, trusted",
    said: "ssd",
  });
  expect(labelsOf({ labels: [], given_labels: [] })).toEqual({ given: "", said: "" });
});

test("GPUs that no worker has are named, with their use where it is known", () => {
  const cards = [
    { card: "card0", name: "Intel GPU 0x9a49" },
    { card: "card1", name: "AMD Instinct MI210", utilization_ratio: 0.37 },
  ];
  expect(cardsOf({ cards })).toEqual([
    "card0: Intel GPU 0x9a49",
    `card1: AMD Instinct MI210, ${formatPercent(0.37)} used`,
  ]);
});
