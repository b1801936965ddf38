import { expect, test } from "vitest";
import { groupUnitsByJob, describeGpus, listResources, filterRunners } from "../src/pages/cluster/model/runners";
import { countWorkers, describeDesired, deviceTitle } from "../src/pages/cluster/model/counts";
import { createDraft } from "../src/lib/draft";
import { formatCurl, createSubmission } from "../src/lib/submission";
import { typedParameters, summarizeJob, explainWait, jobWorkflowAddress } from "../src/lib/summary";
import type { Artifact, Job, Worker } from "../src/lib/api";
import {
  describeArtifact,
  parseCommand,
  formatCommand,
  checkCommand,
  parseEnvironment,
  formatEnvironment,
  objectSchema,
  parseItems,
  formatItems,
  selectParameters,
  otherParameters,
  describeSetFields,
  repetitionOf,
  commandForm,
} from "../src/ui/program";

test("a line for a shell stays a text; arguments are lines", () => {
  expect(parseCommand("a 'b c' > d", "shell")).toBe("a 'b c' > d");
  expect(parseCommand("./a\nb c\n\n--x\n\n", "arguments")).toEqual(["./a", "b c", "", "--x"]);
  expect(parseCommand("  \n", "arguments")).toBeUndefined();
  expect([commandForm("a"), commandForm(["a"])]).toEqual(["shell", "arguments"]);
  expect(formatCommand(["a", "b"])).toBe("a\nb");
  expect(checkCommand("echo {unit}")).toContain("$CLUSTER_UNIT");
  expect(checkCommand(["echo", "{unit}"])).toBeUndefined();
});

test("a literal argument stays one when a job is copied, edited and kept as curl", () => {
  const command = ["echo", "{unit}", { literal: 'a{unit}b\n"c"' }];
  const text = formatCommand(command);
  expect(text).toBe('echo\n{unit}\n{"literal":"a{unit}b\\n\\"c\\""}');
  expect(parseCommand(text, "arguments")).toEqual(command);
  for (const line of ['{"literal":', '{"literal":1}', '{"literal":"a","b":1}', '{"other":"a"}'])
    expect(parseCommand(line, "arguments")).toEqual([line]);
  const job = { type: "command", parameters: { command, count: 2 }, priority: "normal", device: "runner" };
  const kept = formatCurl(createSubmission(createDraft(job as unknown as Job)), "http://a", false);
  expect(kept).toContain(String.raw`"command":["echo","{unit}",{"literal":"a{unit}b\n\"c\""}]`);
  expect(typedParameters("command", job.parameters).command).toBe(String.raw`echo {unit} "a{unit}b\n\"c\""`);
});

test("items are JSON where they are, else texts, and come back as they were typed", () => {
  const typed = 'a b\n1.5\n{"x": [1]}\n\n12345678901234567890\n"7"\n1.50\ntrue';
  expect(parseItems(typed)).toEqual(["a b", 1.5, { x: [1] }, "12345678901234567890", "7", "1.50", true]);
  const again = formatItems(parseItems(typed));
  expect(parseItems(again)).toEqual(parseItems(typed));
  expect(formatItems(["a\nb", "", "7"])).toBe('"a\\nb"\n""\n"7"');
  expect(parseItems(" \n")).toBeUndefined();
  expect([repetitionOf({}), repetitionOf({ items: [] }), repetitionOf({ items_artifact: "a" })]).toEqual([
    "count",
    "items",
    "file",
  ]);
});

test("variables are NAME=value, whatever the value holds", () => {
  expect(parseEnvironment("A=1\nB=x=y \n\n C = z\nD")).toEqual({ A: "1", B: "x=y ", C: " z", D: "" });
  expect(formatEnvironment({ A: "1", B: "" })).toBe("A=1\nB=");
  expect(parseEnvironment("\n")).toBeUndefined();
});

const SCHEMA = {
  $defs: { Needs: { type: "object", properties: { gpus: { type: "integer" } } } },
  properties: {
    command: {},
    outputs: {},
    later: {},
    requirements: { anyOf: [{ $ref: "#/$defs/Needs" }, { type: "null" }] },
    timeout_seconds: {},
  },
};

test("the schema is divided, and a parameter that nobody knows is still shown", () => {
  expect(Object.keys(selectParameters(SCHEMA, ["timeout_seconds", "nothing"]).properties ?? {})).toEqual([
    "timeout_seconds",
  ]);
  expect(otherParameters(SCHEMA)).toEqual(["later"]);
  expect(objectSchema(SCHEMA, "requirements")?.properties).toEqual({ gpus: { type: "integer" } });
  expect(objectSchema(SCHEMA, "command")).toBeUndefined();
  const given = { timeout_seconds: 60, retries: { max: 1 }, batch: 7, env: {}, secrets: [], grace_seconds: 10 };
  const defaults = { properties: { grace_seconds: { default: 10 }, retries: { default: { max: 3 } } } };
  expect(describeSetFields(defaults, given, Object.keys(given))).toBe("timeout seconds 60, retries, batch 7");
  expect(describeSetFields(defaults, { retries: { max: 3 } }, ["retries"])).toBe("");
});

test("an artifact is known by its name and its size", () => {
  const artifact = { artifact_id: "4f0c7be1a1a3ff", names: ["sim"], files: 1, bytes: 2048 } as unknown as Artifact;
  expect(describeArtifact(artifact)).toBe("sim (4f0c7be1): 1 file, 2\u202fKiB");
  expect(describeArtifact({ ...artifact, names: [], files: 3000 })).toBe("4f0c7be1a1a3: 3\u202f000 files, 2\u202fKiB");
});

test("a job of programs in a line has what runs and how often", () => {
  const parameters = { command: ["a"], count: 3, env: {}, retries: { max: 3 }, files: null };
  expect(summarizeJob({ type: "command", parameters } as unknown as Job)).toBe("command a, count 3");
  const words = { command: ["./simulate", "--seed", "{unit}", "a b"] };
  expect(summarizeJob({ type: "command", parameters: words } as unknown as Job)).toBe(
    'command ./simulate --seed {unit} "a b"',
  );
});

test("a job that runs does not wait", () => {
  const why = "its last leases are being computed";
  expect(explainWait({ state: "running", waiting_because: why })).toBe("Its last leases are being computed.");
  expect(explainWait({ state: "queued", waiting_because: "no worker" })).toBe("Waits: no worker.");
  expect(explainWait({ state: "queued", waiting_because: null })).toBe("");
  expect(explainWait({ state: "queued", waiting_because: "starts when a job ends" })).toBe("Starts when a job ends.");
  expect(explainWait({ state: "blocked", waiting_because: "waits for 1 job" })).toBe("Waits for 1 job.");
});

test("a job of a workflow leads to it", () => {
  expect(jobWorkflowAddress("w-a1f90f4531c5-train-large-1")).toBe("/cluster.html#tab=workflows&workflow=a1f90f4531c5");
  expect(jobWorkflowAddress("f-a1f90f4531c5-0-train-1"), "an item of a foreach").toBe(
    "/cluster.html#tab=workflows&workflow=a1f90f4531c5",
  );
  expect(jobWorkflowAddress("5c7b3fb0a1d24e6f")).toBeUndefined();
  expect(jobWorkflowAddress("w-mine")).toBeUndefined();
});

// -- runners --------------------------------------------------------------------------------------------------------

const RUNNER = {
  id: "runner-1",
  device: "runner",
  live: true,
  lanes: 8,
  busy_lanes: 3,
  isolation: "shared",
  offer: { cpus: 8, memory_mib: 65_536, gpus: [], labels: ["ssd"], tenant: "" },
} as unknown as Worker;

test("runners say what they offer, and leave out what they do not tell", () => {
  expect(listResources(RUNNER).map(([name]) => name)).toEqual([
    "slots",
    "CPUs",
    "memory",
    "GPUs",
    "labels",
    "isolation",
  ]);
  expect(Object.fromEntries(listResources(RUNNER))).toMatchObject({
    slots: "3 of 8 busy",
    memory: "64\u202fGiB",
    GPUs: "none",
  });
  const { offer: _offer, isolation: _isolation, ...silent } = RUNNER;
  expect(listResources({ ...silent, live: false })).toEqual([["slots", "8"]]);
  expect(filterRunners([RUNNER, { ...RUNNER, device: "cpu" }] as Worker[])).toHaveLength(1);
});

test("equal GPUs are told once", () => {
  const gpu = { name: "X", memory_mib: 1024, compute_capability: "9.0" };
  expect(describeGpus([gpu, { memory_mib: 2048, compute_capability: "" }, gpu])).toEqual([
    "2\u202f×\u202fX, 1\u202fGiB, compute 9.0",
    "GPU, 2\u202fGiB",
  ]);
});

test("what runs is told by job", () => {
  expect(
    groupUnitsByJob([
      ["a", 5],
      ["b", 1],
      ["a", 3],
      ["a", 4],
    ]),
  ).toEqual([
    ["a", "units 3, 4 and 5"],
    ["b", "unit 1"],
  ]);
  expect(groupUnitsByJob(undefined)).toEqual([]);
});

test("runners are counted by their own name", () => {
  const all = countWorkers([RUNNER, { device: "cpu", live: true }], { cpu: 2, runner: 1 });
  expect(describeDesired(all)).toBe("2 CPU, 1 runner");
  expect([deviceTitle("runner"), deviceTitle("gpu")]).toEqual(["Runners", "GPU workers"]);
});
