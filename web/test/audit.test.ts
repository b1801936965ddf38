import { expect, test } from "vitest";
import { parseEntries } from "../src/pages/cluster/model/audit";

test("entries of the audit log are listed newest first, without the line about omitted ones", () => {
  const submit = { seq: 5, t: 1700000000000, tenant: "default", token: "k1", action: "submit", subject: "j1" };
  const denied = { seq: 6, t: 1700000001000, tenant: "", token: "", action: "denied", subject: "10.0.0.7" };
  const lines = [
    { after: 4, hash: "aa" },
    { ...submit, outcome: "queued", hash: "bb" },
    { ...denied, outcome: "limited", count: 12, hash: "cc" },
  ].map((entry) => JSON.stringify(entry));
  const entries = parseEntries(lines);
  expect(entries.map(({ seq }) => seq)).toEqual([6, 5]);
  expect(entries[0]?.outcome).toBe("limited, 12 times");
  expect(entries[1]).toMatchObject({ time: "2023-11-14T22:13:20.000Z", action: "submit", subject: "j1" });
});
