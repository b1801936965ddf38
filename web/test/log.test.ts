import { expect, test } from "vitest";
import { scrollTopOf, computeVisibleRows } from "../src/lib/visible-rows";
import { LogLines, MAX_LINE_BYTES } from "../src/logs/lines";
import { appendFrame, startPosition, type StreamName } from "../src/logs/log";
import { LogSearch } from "../src/logs/search";
import { markHits, splitStyles, stripStyles } from "../src/logs/terminal";

const bytes = (text: string) => new TextEncoder().encode(text);

function linesOf(...parts: string[]): LogLines {
  const lines = new LogLines();
  for (const part of parts) lines.push(bytes(part));
  return lines;
}

function texts(lines: LogLines): string[] {
  return Array.from({ length: lines.count }, (_, line) => lines.noteAt(line) ?? lines.text(line));
}

test("lines come out whole however the bytes came in", () => {
  const text = "first\nsecönd\r\n\nlast";
  for (let size = 1; size < 9; size += 1) {
    const lines = new LogLines();
    const all = bytes(text);
    for (let at = 0; at < all.length; at += size) lines.push(all.subarray(at, at + size));
    expect(texts(lines)).toEqual(["first", "secönd", "", "last"]);
    expect(lines.complete).toBe(3);
    expect(new TextDecoder().decode(lines.allBytes())).toBe(text);
  }
});

test("what was written over is gone, as on a terminal", () => {
  expect(texts(linesOf("10%\r50%\r100%\n", "20%\r40%\r"))).toEqual(["100%", "40%"]);
});

test("a line without an end is cut between characters, and nothing of it is lost", () => {
  const text = "ä".repeat(MAX_LINE_BYTES);
  const lines = linesOf(text);
  expect(lines.count).toBe(2);
  expect(texts(lines).join("")).toBe(text);
  const raw = new LogLines();
  raw.push(new Uint8Array(3 * MAX_LINE_BYTES).fill(0x80));
  expect(raw.count).toBe(3);
});

test("nine million bytes are lines at once", () => {
  const lines = new LogLines();
  const piece = bytes(`${"x".repeat(59)}\n`.repeat(10_000));
  for (let count = 0; count < 15; count += 1) lines.push(piece);
  expect(lines.count).toBe(150_000);
  expect(lines.text(149_999)).toBe("x".repeat(59));
});

test("a note stands between lines, and a line that had begun ends before it", () => {
  const lines = linesOf("a\nb");
  lines.addNote("attempt 2");
  lines.push(bytes("c\n"));
  expect(texts(lines)).toEqual(["a", "b", "attempt 2", "c"]);
});

test("only what is in sight is drawn, to the last line of a list of any length", () => {
  expect(computeVisibleRows(0, 18, 0, 400)).toMatchObject({ first: 0, last: 0, height: 0 });
  expect(computeVisibleRows(100, 18, 900, 400)).toMatchObject({ first: 50, last: 74, height: 1800, top: 900 });
  const count = 5_000_000;
  const { height } = computeVisibleRows(count, 18, 0, 400);
  expect(height).toBe(8_000_000);
  expect(computeVisibleRows(count, 18, height - 400, 400).last).toBe(count);
  for (const line of [0, 12, 2_500_000, count - 1]) {
    const seen = computeVisibleRows(count, 18, scrollTopOf(line, count, 18, 400), 400);
    expect(seen.first).toBeLessThanOrEqual(line);
    expect(seen.last).toBeGreaterThan(line);
  }
});

// -- escapes --------------------------------------------------------------------------------------------------------

test("colors are names, and end where they end", () => {
  expect(splitStyles("a\u001b[1;31mb\u001b[0mc\u001b[92md\u001b[39me")).toEqual([
    { text: "a", style: "" },
    { text: "b", style: "red bold" },
    { text: "c", style: "" },
    { text: "d", style: "green" },
    { text: "e", style: "" },
  ]);
  // A palette color consumes its parameters, so they are not read as further styles.
  expect(splitStyles("\u001b[38;5;31mx\u001b[48;2;1;31;7;4my")).toEqual([
    { text: "x", style: "" },
    { text: "y", style: "underline" },
  ]);
});

test.each([
  ["a title", "\u001b]0;title\u0007text", "text"],
  ["a link", "\u001b]8;;http://x\u001b\\text\u001b]8;;\u001b\\", "text"],
  ["moves and erasing", "\u001b[2K\u001b[1Gtext\u001b[?25l", "text"],
  ["a title without an end", "\u001b]0;text", "0;text"],
  ["other escapes", "\u001b(Btext\u001b7", "text"],
  ["a control character", "a\u0000b\u0007c", "a\u2400b\u2407c"],
  ["text that is turned around", "a\u202eb", "a<U+202E>b"],
  ["what begins nothing", "a\u001b", "a"],
])("%s is harmless", (_, text, expected) => {
  expect(stripStyles(text)).toBe(expected);
  expect(
    splitStyles(text)
      .map((piece) => piece.text)
      .join(""),
  ).toBe(expected);
});

test("what is sought is marked across colors", () => {
  const list = splitStyles("an er\u001b[31mror\u001b[0m, Error");
  expect(markHits(list, "error")).toEqual([
    { text: "an ", style: "" },
    { text: "er", style: "hit" },
    { text: "ror", style: "red hit" },
    { text: ", ", style: "" },
    { text: "Error", style: "hit" },
  ]);
  expect(markHits(list, "nowhere")).toEqual(list);
});

test("a search finds lines without their escapes, and goes on where a log grows", () => {
  const lines = linesOf("one\nt\u001b[1mwo\u001b[0m\nthree\nTW");
  const search = new LogSearch("two");
  expect(search.step(lines, false)).toBe(true);
  expect(search.hits).toEqual([1]);
  lines.push(bytes("O\nend two"));
  search.step(lines, false);
  expect(search.hits).toEqual([1, 3]);
  search.step(lines, true);
  expect(search.hits).toEqual([1, 3, 4]);
});

// -- followed -------------------------------------------------------------------------------------------------------

function output(offset: number, text: string, more: object = {}) {
  const data = btoa(text);
  return {
    event: "output",
    id: "",
    data: JSON.stringify({ unit: 0, attempt: 1, offset, stream: "stdout", data, ...more }),
  };
}

function followed(frames: ReturnType<typeof output>[], wanted: StreamName = "all") {
  const [lines, heard] = [new LogLines(), startPosition()];
  for (const frame of frames) appendFrame(lines, heard, frame, wanted);
  return { texts: texts(lines), heard };
}

test("what comes twice is taken once, and what never came is said", () => {
  const { texts, heard } = followed([output(0, "ab\n"), output(0, "ab\n"), output(1, "b\ncd\n"), output(10, "z\n")]);
  expect(texts).toEqual(["ab", "cd", expect.stringContaining("4\u202fB were not sent"), "z"]);
  expect(heard).toMatchObject({ attempt: 1, at: 12, hasEnded: false });
});

test("another attempt begins anew, with a line that says so", () => {
  const { texts } = followed([output(0, "a\n"), output(0, "b\n", { attempt: 2 })]);
  expect(texts).toEqual(["a", "attempt 2", "b"]);
  const again = [output(0, "a\n", { run: "x" }), output(0, "a\nb\n", { run: "y" }), output(0, "c\n", { attempt: 0 })];
  expect(followed(again).texts).toEqual(["a", "attempt 1, started again", "a", "b"]);
});

test("one stream alone leaves out the other without gaps", () => {
  const frames = [output(0, "a\n"), output(2, "oops\n", { stream: "stderr" }), output(7, "b\n")];
  expect(followed(frames, "stdout").texts).toEqual(["a", "b"]);
  expect(followed(frames, "stderr").texts).toEqual(["oops"]);
});

test("bytes that were dropped are said, and the end is heard", () => {
  const { texts, heard } = followed([
    output(0, "a\n"),
    { event: "dropped", id: "", data: '{"bytes": 2048}' },
    output(2050, "b\n"),
    { event: "end", id: "", data: '{"state": "done", "exit": 0, "bytes": 2}' },
  ]);
  expect(texts).toEqual(["a", expect.stringContaining("2\u202fKiB were not sent"), "b"]);
  expect(heard.hasEnded).toBe(true);
});
