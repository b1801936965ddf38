import { expect, test } from "vitest";
import { unusedName, profilerShare, parseManifest } from "../src/pages/cluster/model/profiles";
import { analyzeRecordings, parseRecording } from "../src/pages/cluster/model/recording";

const HEAD = { profile: 1, id: "a", host: "one", hz: 10, cores: 4, devices: ["host:one"], wall: 1000, offset: 0.5 };

function text(head: object, samples: readonly object[]): string {
  return `${[head, ...samples].map((each) => JSON.stringify(each)).join("\n")}\n`;
}

/** Return ten seconds of samples of a host with this share of busy cores. */
function busy(share: number, count = 101): object[] {
  return Array.from({ length: count }, (_, index) => ({ t: index / 10, cpu: share * 4 * (index / 10), m: 2 ** 30 }));
}

test("use is the growth of core-seconds over time and cores", () => {
  const found = analyzeRecordings(parseRecording(text(HEAD, busy(0.25))));
  expect(found?.devices.map(({ title, samples }) => [title, samples])).toEqual([["one", 101]]);
  const [one] = found?.devices ?? [];
  expect(one?.line.length).toBe(20);
  for (const share of one?.line ?? []) expect(share).toBeCloseTo(0.25, 6);
  expect([one?.mean, one?.p95]).toEqual([expect.closeTo(0.25, 6), expect.closeTo(0.25, 6)]);
  expect([one?.idle, one?.memory, one?.watts]).toEqual([0, 2 ** 30, null]);
  expect(found?.times[0]).toBeCloseTo(1001, 6);
});

test("a figure that is left out is as before, and a line that was cut off is none", () => {
  const samples = busy(0.5).map((each, index) => (index % 2 ? { t: index / 10 } : each));
  const cut = `${text(HEAD, samples)}{"t": 10.1, "cp`;
  const [one] = analyzeRecordings(parseRecording(cut))?.devices ?? [];
  expect(one?.samples).toBe(101);
  expect(one?.mean).toBeCloseTo(0.5, 1);
});

test("a hole between samples is not known, and a second recording goes on behind it", () => {
  const later = { ...HEAD, wall: 1020 };
  const found = analyzeRecordings([...parseRecording(text(HEAD, busy(1))), ...parseRecording(text(later, busy(0)))]);
  expect(found?.devices.length).toBe(1);
  const line = found?.devices[0]?.line ?? [];
  expect(line.length).toBe(60);
  expect(line.filter((share) => share === null).length).toBe(20);
  expect(found?.devices[0]?.idle).toBeCloseTo(0.5, 6);
});

test("GPUs have their own figures, and watts become joules", () => {
  const head = { ...HEAD, gpus: [{ uuid: "GPU-1", index: 0, name: "A GPU" }] };
  const samples = busy(0).map((each, index) => ({ ...each, gpus: index === 0 ? { "GPU-1": { u: 0.5, w: 100 } } : {} }));
  const [gpu, host] = analyzeRecordings(parseRecording(text(head, samples)))?.devices ?? [];
  expect([gpu?.title, gpu?.mean, gpu?.watts]).toEqual(["one GPU 0", 0.5, 100]);
  expect(gpu?.joules).toBeCloseTo(1000, 6);
  expect(host?.joules).toBeNull();
});

test.each(["", "{}", "no JSON", '{"profile": 2}', '{"profile": 1}', '{"profile": 1}\n{"t": "x"}\n[]\nnull'])(
  "%j is no recording with samples",
  (content) => expect(analyzeRecordings(parseRecording(content))).toBeUndefined(),
);

test("of a manifest the recordings are taken, and nothing else", () => {
  const lines = ['{"artifact":1}', '["d","x"]', '["f","profile.json",3,"aa"]', '["f","w-1.1.jsonl.gz",9,"bb"]', ""];
  expect(parseManifest(lines.join("\n"))).toEqual([{ path: "w-1.1.jsonl.gz", sha: "bb" }]);
});

test("a name that is free is by the hour", () => {
  const at = new Date(2026, 10, 3, 7, 5);
  expect(unusedName([], at)).toBe("p-1103-0705");
  expect(unusedName(["p-1103-0705", "p-1103-0705-2"], at)).toBe("p-1103-0705-3");
});

test("the share that sampling took is of one core, over all recordings", () => {
  expect(profilerShare([])).toBe("");
  const own = profilerShare([
    { cpu_seconds: 0.1, seconds: 10 },
    { cpu_seconds: 0.3, seconds: 10 },
  ]);
  expect(own.replaceAll("\u202f", " ")).toBe("2.0 %");
});
