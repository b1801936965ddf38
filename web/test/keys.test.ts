import { expect, test } from "vitest";
import { keyName } from "../src/lib/keys";

const press = (key: string, more = {}) =>
  keyName({ key, shiftKey: false, ctrlKey: false, metaKey: false, altKey: false, ...more });

test("keys have the names of the tables", () => {
  expect([
    press(" "),
    press("?", { shiftKey: true }),
    press("T", { shiftKey: true }),
    press("ArrowLeft", { shiftKey: true }),
    press("r", { ctrlKey: true }),
  ]).toEqual(["Space", "?", "T", "Shift+Left", "Ctrl+r"]);
});
