import { expect, test } from "vitest";
import { isAfter, Parser } from "../src/lib/sse";

const TEXT =
  'retry: 2000\n\n: ping\n\nid: 5-1\nevent: progress\ndata: {"done":1}\n\n' +
  "event: queue\r\ndata: a\r\ndata:  b\r\n\r\ndata\n\nid: 9\n\ndata: é\n\n";
const FRAMES = [
  { id: "5-1", event: "progress", data: '{"done":1}' },
  { id: "", event: "queue", data: "a\n b" },
  { id: "", event: "message", data: "" },
  { id: "", event: "message", data: "é" },
];

test("frames come whole, comments and frames without data do not", () => {
  const parser = new Parser();
  expect(parser.push(TEXT)).toEqual(FRAMES);
  expect(parser.retry).toBe(2000);
});

test("pieces may end anywhere", () => {
  for (let cut = 1; cut < TEXT.length; cut += 1) {
    const parser = new Parser();
    expect([...parser.push(TEXT.slice(0, cut)), ...parser.push(TEXT.slice(cut))], `cut at ${cut}`).toEqual(FRAMES);
  }
  const parser = new Parser();
  expect([...TEXT].flatMap((each) => parser.push(each))).toEqual(FRAMES);
});

test("positions compare as numbers", () => {
  expect([isAfter("10-0", "9-9"), isAfter("9-10", "9-9"), isAfter("9-9", "9-9"), isAfter("8-1", "9-0")]).toEqual([
    true,
    true,
    false,
    false,
  ]);
});
