/** Profiles of hosts and GPUs: start, stop, and view recordings. */

import { useSignal } from "@preact/signals";
import { asProblem, type Profile, type Recording } from "../../lib/api";
import { download } from "../../lib/export";
import { formatAge, formatBytes, formatCompact, formatInteger, formatPercent, formatSeconds } from "../../lib/format";
import { clusterTime, knownUntil } from "../../lib/live";
import { Button, TextButton } from "../../ui/button";
import { useRequest } from "../../ui/request";
import { Chart } from "../../ui/chart";
import { askConfirmation, Dialog } from "../../ui/dialog";
import { StateLabel } from "../../ui/state";
import { EmptyMessage, LoadingRows, Table, type Column, numberColumn } from "../../ui/table";
import { runAction, showError, showToast } from "../../ui/toast";
import { PolledTable } from "./listing";
import { usePolling } from "./model/polling";
import {
  analyzeArtifact,
  deleteProfile,
  loadRecordings,
  unusedName,
  MAX_BYTES,
  profilerShare,
  loadProfiles,
  startProfile,
  controlProfile,
} from "./model/profiles";
import type { DeviceUsage } from "./model/recording";

/** Interval in seconds between requests for the list. */
const REFRESH_SECONDS = 2;
const SAMPLE_RATES = [1, 10, 100];
const LENGTHS: [number, string][] = [
  [60, "1 min"],
  [600, "10 min"],
  [3600, "1 h"],
  [86_400, "1 d"],
];

export function Profiles() {
  /** Number of actions on this page, each of which refreshes the list. */
  const acts = useSignal(0);
  const openProfile = useSignal("");
  const asks = useSignal(false);
  const answer = usePolling(`profiles ${acts.value}`, REFRESH_SECONDS, loadProfiles);
  const { value, problem } = answer.value;
  if (problem?.status === 404) return null;
  const done = async (what: string, work: Promise<unknown>) => {
    await runAction(what, what, work);
    acts.value += 1;
  };
  const stop = (name: string) => void done(`Stop ${name}`, controlProfile(name, "stop"));
  const remove = async (row: Profile) => {
    const question = {
      title: `Delete profile ${row.name}?`,
      text: "The recorded data is deleted permanently.",
      buttonLabel: "Delete profile",
      isDangerous: true,
    };
    if (await askConfirmation(question)) await done(`Delete ${row.name}`, deleteProfile(row.name));
  };
  const open = (name: string) => (openProfile.value = openProfile.peek() === name ? "" : name);
  const opened = value?.find((row) => row.name === openProfile.value);
  return (
    <PolledTable
      title="Profiles"
      pollState={answer.value}
      columns={createColumns(open, stop)}
      openKey={openProfile.value}
      empty={<NoProfiles />}
      action={<Button onClick={() => (asks.value = true)}>New profile</Button>}
    >
      {opened && (
        <OpenProfile
          key={`${opened.name} ${opened.artifact_id ?? ""}`}
          row={opened}
          onRecover={() => void done(`Recover ${opened.name}`, controlProfile(opened.name, "recover"))}
          onDelete={() => void remove(opened)}
        />
      )}
      {asks.value && (
        <NewProfile
          usedNames={(value ?? []).map((row) => row.name)}
          onClose={() => (asks.value = false)}
          onStarted={(name) => {
            asks.value = false;
            openProfile.value = name;
            acts.value += 1;
          }}
        />
      )}
    </PolledTable>
  );
}

function createColumns(open: (name: string) => void, stop: (name: string) => void): Column<Profile>[] {
  return [
    {
      id: "name",
      title: "profile",
      cell: ({ name }) => <TextButton onClick={() => open(name)}>{name}</TextButton>,
    },
    {
      id: "state",
      title: "state",
      canWrap: true,
      cell: ({ state, trouble }) => (
        <>
          <StateLabel state={state} />
          {trouble && <div class="small bad">{trouble}</div>}
        </>
      ),
    },
    numberColumn("hz", "samples/s", ({ hz }) => hz),
    numberColumn("samples", "samples", (row) => formatInteger(row.samples)),
    {
      id: "missed",
      title: "missed",
      isNumeric: true,
      cell: ({ missed }) => <span class={missed ? "num bad" : "num"}>{formatInteger(missed)}</span>,
    },
    numberColumn("size", "size", (row) => formatBytes(row.bytes)),
    numberColumn("own", "own CPU", (row) => profilerShare(row.recordings)),
    {
      id: "created",
      title: "started",
      cell: ({ created }) => <span class="num">{formatAge(created, clusterTime(knownUntil.value))}</span>,
    },
    {
      id: "acts",
      title: <span class="visually-hidden">acts</span>,
      cell: ({ name, state }) =>
        state === "recording" && (
          <Button aria-label={`Stop ${name}`} onClick={() => stop(name)}>
            Stop
          </Button>
        ),
    },
  ];
}

const RECORDING_COLUMNS: Column<Recording>[] = [
  { id: "host", title: "host", cell: ({ host }) => <span class="mono">{host}</span> },
  { id: "worker", title: "worker", cell: ({ worker }) => <span class="mono">{worker}</span> },
  { id: "state", title: "state", cell: ({ state }) => <StateLabel state={state} /> },
  numberColumn("time", "time", (one) => formatSeconds(one.seconds)),
  numberColumn("samples", "samples", (one) => formatInteger(one.samples)),
  numberColumn("missed", "missed", (one) => formatInteger(one.missed)),
  numberColumn("size", "size", (one) => formatBytes(one.bytes)),
  { id: "ended", title: "ended", cell: ({ ended }) => ended ?? "" },
];

function OpenProfile({ row, onRecover, onDelete }: { row: Profile; onRecover: () => void; onDelete: () => void }) {
  const { name, state, artifact_id: artifact } = row;
  const save = async () => {
    try {
      for (const { name: file, data } of await loadRecordings(artifact ?? "")) download(`${name}-${file}`, data);
    } catch (error) {
      showError(`Download ${name}`, error);
    }
  };
  return (
    <section class="part stack" aria-label={`Profile ${name}`}>
      <div class="row">
        <h3 class="grow">{name}</h3>
        {artifact && <Button onClick={() => void save()}>Download</Button>}
        {state === "done" && <Button onClick={onRecover}>Recover</Button>}
        <Button class="danger" onClick={onDelete}>
          Delete
        </Button>
      </div>
      <Table
        label={`Recordings of ${name}`}
        columns={RECORDING_COLUMNS}
        rows={row.recordings}
        rowKey={(one) => one.name}
        class="cards"
        empty={<EmptyMessage title="No worker has started to record yet" />}
      />
      {artifact && row.bytes <= MAX_BYTES && <Measurements artifact={artifact} />}
      {artifact && row.bytes > MAX_BYTES && (
        <p class="soft">
          {formatBytes(row.bytes)} are too much for a page:{" "}
          <code>
            cluster profile analyze {name} --plot {name}.pdf
          </code>
        </p>
      )}
      {state === "recording" && <p class="soft small">What it recorded is shown here once it has been stopped.</p>}
    </section>
  );
}

/** Measurements of each device, once the recordings are loaded. */
function Measurements({ artifact }: { artifact: string }) {
  const { value, problem } = useRequest(async (signal) => ({ found: await analyzeArtifact(artifact, signal) }));
  if (problem) return <p class="soft">It could not be read: {problem.detail}</p>;
  if (!value) return <LoadingRows rows={4} />;
  if (!value.found) return <p class="soft">No sample was recorded.</p>;
  const { times, devices } = value.found;
  return (
    <>
      <Chart
        title="Use of hosts and GPUs"
        times={times}
        series={devices.map(({ title, line }) => ({ label: title, values: line }))}
        format={(value) => formatPercent(value)}
        minTop={1}
        height={160}
      />
      <Table
        label="Figures of each device"
        columns={USAGE_COLUMNS}
        rows={devices}
        rowKey={(one) => one.device}
        class="cards"
      />
    </>
  );
}

const USAGE_COLUMNS: Column<DeviceUsage>[] = [
  { id: "device", title: "device", cell: ({ title }) => title },
  numberColumn("mean", "use, mean", (one) => formatPercent(one.mean)),
  numberColumn("p95", "95 %", (one) => formatPercent(one.p95)),
  numberColumn("idle", "idle", (one) => formatPercent(one.idle)),
  numberColumn("memory", "memory", (one) => formatBytes(one.memory)),
  numberColumn("power", "power", (one) => formatUnit(one.watts, "W")),
  numberColumn("energy", "energy", (one) => formatUnit(one.joules, "J")),
];

function formatUnit(value: number | null, name: string): string {
  return value === null ? "" : `${formatCompact(value)} ${name}`;
}

interface NewProfileProps {
  usedNames: readonly string[];
  onClose: () => void;
  onStarted: (name: string) => void;
}

function NewProfile({ usedNames: taken, onClose, onStarted }: NewProfileProps) {
  const name = useSignal(unusedName(taken, new Date()));
  const hz = useSignal(10);
  const length = useSignal(600);
  const problem = useSignal("");
  const busy = useSignal(false);
  const start = async () => {
    if (busy.peek()) return;
    busy.value = true;
    try {
      const row = await startProfile({ name: name.peek(), hz: hz.peek(), seconds: length.peek() });
      showToast(`${row.name} records`);
      onStarted(row.name);
    } catch (error) {
      problem.value = asProblem(error).detail;
    }
    busy.value = false;
  };
  return (
    <Dialog title="New profile" onClose={onClose}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        <label class="field">
          <span>Name</span>
          <input
            value={name.value}
            maxLength={56}
            spellcheck={false}
            onInput={(event) => (name.value = event.currentTarget.value)}
          />
        </label>
        <Choice label="Samples per second" options={SAMPLE_RATES.map((each) => [each, String(each)])} selection={hz} />
        <Choice label="Stops after" options={LENGTHS} selection={length} />
        {problem.value && (
          <p class="trouble" role="alert">
            {problem.value}
          </p>
        )}
        <div class="dialog-foot">
          <button type="submit" class="primary" disabled={busy.value}>
            Start recording
          </button>
        </div>
      </form>
    </Dialog>
  );
}

interface ChoiceProps {
  label: string;
  options: readonly (readonly [number, string])[];
  selection: { value: number };
}

function Choice({ label, options: of, selection: chosen }: ChoiceProps) {
  return (
    <label class="field">
      <span>{label}</span>
      <select onChange={(event) => (chosen.value = Number(event.currentTarget.value))}>
        {of.map(([value, text]) => (
          <option key={value} value={value} selected={value === chosen.value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

function NoProfiles() {
  return (
    <EmptyMessage title="No profile yet">
      <p>A profile records how busy all hosts and GPUs are for a limited time. To start a profile from a shell:</p>
      <pre>cluster profile start night --hz 10</pre>
    </EmptyMessage>
  );
}
