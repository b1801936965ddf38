import { expect, test } from "vitest";
import { formatCsv } from "../src/lib/export";

test("csv quotes what must be, keeps big integers and ends each line", () => {
  expect(
    formatCsv([
      ["Number", "Steps"],
      [27, 111n],
      ["a,b", 'say "x"'],
      [null, true],
    ]),
  ).toBe('Number,Steps\r\n27,111\r\n"a,b","say ""x"""\r\n,true\r\n');
});

test("a spreadsheet takes no text for a formula, and negative numbers stay numbers", () => {
  expect(formatCsv([["=1+1", "-5", "@x", -5, "-x"]])).toBe("'=1+1,-5,'@x,-5,'-x\r\n");
});
