/** Profiles: what hosts and GPUs did while it recorded. Started, followed, stopped and looked at here. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Problem, type Profile, type Recording } from "../../lib/api";
import { download } from "../../lib/export";
import { ago, bytes, compact, integer, percent, seconds } from "../../lib/format";
import { clusterTime, connection, seenAt } from "../../lib/live";
import { Chart } from "../../ui/chart";
import { confirm, Dialog } from "../../ui/dialog";
import { State } from "../../ui/state";
import { Empty, Skeleton, Table, type Column } from "../../ui/table";
import { failed, toast } from "../../ui/toast";
import { Trouble } from "../../ui/trouble";
import { usePolled } from "./model/polled";
import {
  analysed,
  deleteProfile,
  files,
  freeName,
  MOST_BYTES,
  ownShare,
  profiles,
  startProfile,
  steerProfile,
} from "./model/profiles";
import type { Analysis, Used } from "./model/recording";

/** Seconds between two questions for the list. */
const EACH = 2;
const HZ = [1, 10, 100];
const LENGTHS: [number, string][] = [
  [60, "1 min"],
  [600, "10 min"],
  [3600, "1 h"],
  [86_400, "1 d"],
];

export function Profiles() {
  /** Counts what was done here: each changes the list. */
  const acts = useSignal(0);
  const shown = useSignal("");
  const asks = useSignal(false);
  const answer = usePolled(`profiles ${acts.value}`, EACH, profiles);
  const { value, problem } = answer.value;
  if (problem?.status === 404) return null;
  const done = async (what: string, act: () => Promise<unknown>) => {
    try {
      await act();
      toast(what);
    } catch (error) {
      failed(what, error);
    }
    acts.value += 1;
  };
  const stop = (name: string) => void done(`Stop ${name}`, () => steerProfile(name, "stop"));
  const remove = async (row: Profile) => {
    const question = {
      title: `Delete profile ${row.name}?`,
      text: "What was recorded is gone for good.",
      act: "Delete profile",
      danger: true,
    };
    if (await confirm(question)) await done(`Delete ${row.name}`, () => deleteProfile(row.name));
  };
  const open = (name: string) => (shown.value = shown.peek() === name ? "" : name);
  const opened = value?.find((row) => row.name === shown.value);
  return (
    <section class="stack" aria-labelledby="profiles-title">
      <div class="row">
        <h2 id="profiles-title" class="grow">
          Profiles <span class="num soft">{value && integer(value.length)}</span>
        </h2>
        <button type="button" onClick={() => (asks.value = true)}>
          New profile
        </button>
      </div>
      {problem && connection.value === "live" && <Trouble what="List of profiles" problem={problem} />}
      {value ? (
        <div class="ages">
          <Table
            label="Profiles"
            columns={columns(open, stop)}
            rows={value}
            name={(row) => row.name}
            open={shown.value}
            class="cards"
            empty={<None />}
          />
        </div>
      ) : (
        !problem && <Skeleton rows={2} />
      )}
      {opened && (
        <Opened
          key={`${opened.name} ${opened.artifact_id ?? ""}`}
          row={opened}
          onRecover={() => void done(`Recover ${opened.name}`, () => steerProfile(opened.name, "recover"))}
          onDelete={() => void remove(opened)}
        />
      )}
      {asks.value && (
        <NewProfile
          taken={(value ?? []).map((row) => row.name)}
          onClose={() => (asks.value = false)}
          onStarted={(name) => {
            asks.value = false;
            shown.value = name;
            acts.value += 1;
          }}
        />
      )}
    </section>
  );
}

function columns(open: (name: string) => void, stop: (name: string) => void): Column<Profile>[] {
  return [
    {
      id: "name",
      title: "profile",
      cell: ({ name }) => (
        <button type="button" class="link" onClick={() => open(name)}>
          {name}
        </button>
      ),
    },
    {
      id: "state",
      title: "state",
      wrap: true,
      cell: ({ state, trouble }) => (
        <>
          <State of={state} />
          {trouble && <div class="small bad">{trouble}</div>}
        </>
      ),
    },
    { id: "hz", title: "samples/s", end: true, cell: ({ hz }) => <span class="num">{hz}</span> },
    { id: "samples", title: "samples", end: true, cell: (row) => <span class="num">{integer(row.samples)}</span> },
    {
      id: "missed",
      title: "missed",
      end: true,
      cell: ({ missed }) => <span class={missed ? "num bad" : "num"}>{integer(missed)}</span>,
    },
    { id: "size", title: "size", end: true, cell: (row) => <span class="num">{bytes(row.bytes)}</span> },
    { id: "own", title: "own CPU", end: true, cell: (row) => <span class="num">{ownShare(row.recordings)}</span> },
    {
      id: "created",
      title: "started",
      cell: ({ created }) => <span class="num">{ago(created, clusterTime(seenAt.value))}</span>,
    },
    {
      id: "acts",
      title: <span class="visually-hidden">acts</span>,
      cell: ({ name, state }) =>
        state === "recording" && (
          <button type="button" aria-label={`Stop ${name}`} onClick={() => stop(name)}>
            Stop
          </button>
        ),
    },
  ];
}

const RECORDINGS: Column<Recording>[] = [
  { id: "host", title: "host", cell: ({ host }) => <span class="mono">{host}</span> },
  { id: "worker", title: "worker", cell: ({ worker }) => <span class="mono">{worker}</span> },
  { id: "state", title: "state", cell: ({ state }) => <State of={state} /> },
  { id: "time", title: "time", end: true, cell: (one) => <span class="num">{seconds(one.seconds)}</span> },
  { id: "samples", title: "samples", end: true, cell: (one) => <span class="num">{integer(one.samples)}</span> },
  { id: "missed", title: "missed", end: true, cell: (one) => <span class="num">{integer(one.missed)}</span> },
  { id: "size", title: "size", end: true, cell: (one) => <span class="num">{bytes(one.bytes)}</span> },
  { id: "ended", title: "ended", cell: ({ ended }) => ended ?? "" },
];

function Opened({ row, onRecover, onDelete }: { row: Profile; onRecover: () => void; onDelete: () => void }) {
  const { name, state, artifact_id: artifact } = row;
  const save = async () => {
    try {
      for (const { name: file, data } of await files(artifact ?? "")) download(`${name}-${file}`, data);
    } catch (error) {
      failed(`Download ${name}`, error);
    }
  };
  return (
    <section class="part stack" aria-label={`Profile ${name}`}>
      <div class="row">
        <h3 class="grow">{name}</h3>
        {artifact && (
          <button type="button" onClick={() => void save()}>
            Download
          </button>
        )}
        {state === "done" && (
          <button type="button" onClick={onRecover}>
            Recover
          </button>
        )}
        <button type="button" class="danger" onClick={onDelete}>
          Delete
        </button>
      </div>
      <Table
        label={`Recordings of ${name}`}
        columns={RECORDINGS}
        rows={row.recordings}
        name={(one) => one.name}
        class="cards"
        empty={<Empty title="No worker has begun to record yet" />}
      />
      {artifact && row.bytes <= MOST_BYTES && <Figures artifact={artifact} />}
      {artifact && row.bytes > MOST_BYTES && (
        <p class="soft">
          {bytes(row.bytes)} are too much for a page:{" "}
          <code>
            cluster profile analyze {name} --plot {name}.pdf
          </code>
        </p>
      )}
      {state === "recording" && <p class="soft small">What it recorded is shown here once it has been stopped.</p>}
    </section>
  );
}

/** What each device did, once the recordings are here. */
function Figures({ artifact }: { artifact: string }) {
  const found = useSignal<Analysis | undefined>(undefined);
  const said = useSignal("");
  useEffect(() => {
    const control = new AbortController();
    analysed(artifact, control.signal).then(
      (value) => {
        found.value = value;
        if (!value) said.value = "No sample was recorded.";
      },
      (error: unknown) => {
        if (!control.signal.aborted)
          said.value = `It could not be read: ${error instanceof Problem ? error.detail : String(error)}`;
      },
    );
    return () => control.abort();
  }, []);
  if (said.value) return <p class="soft">{said.value}</p>;
  if (!found.value) return <Skeleton rows={4} />;
  const { times, devices } = found.value;
  return (
    <>
      <Chart
        title="Use of hosts and GPUs"
        times={times}
        series={devices.map(({ title, line }) => ({ label: title, values: line }))}
        format={(value) => percent(value)}
        least={1}
        height={160}
      />
      <Table label="Figures of each device" columns={USED} rows={devices} name={(one) => one.device} class="cards" />
    </>
  );
}

const USED: Column<Used>[] = [
  { id: "device", title: "device", cell: ({ title }) => title },
  { id: "mean", title: "use, mean", end: true, cell: (one) => <span class="num">{percent(one.mean)}</span> },
  { id: "p95", title: "95 %", end: true, cell: (one) => <span class="num">{percent(one.p95)}</span> },
  { id: "idle", title: "idle", end: true, cell: (one) => <span class="num">{percent(one.idle)}</span> },
  { id: "memory", title: "memory", end: true, cell: (one) => <span class="num">{bytes(one.memory)}</span> },
  { id: "power", title: "power", end: true, cell: (one) => <span class="num">{unit(one.watts, "W")}</span> },
  { id: "energy", title: "energy", end: true, cell: (one) => <span class="num">{unit(one.joules, "J")}</span> },
];

function unit(value: number | null, name: string): string {
  return value === null ? "" : `${compact(value)} ${name}`;
}

interface NewProfileProps {
  taken: readonly string[];
  onClose: () => void;
  onStarted: (name: string) => void;
}

function NewProfile({ taken, onClose, onStarted }: NewProfileProps) {
  const name = useSignal(freeName(taken, new Date()));
  const hz = useSignal(10);
  const length = useSignal(600);
  const problem = useSignal("");
  const busy = useSignal(false);
  const start = async () => {
    if (busy.peek()) return;
    busy.value = true;
    try {
      const row = await startProfile({ name: name.peek(), hz: hz.peek(), seconds: length.peek() });
      toast(`${row.name} records`);
      onStarted(row.name);
    } catch (error) {
      problem.value = error instanceof Problem ? error.detail : String(error);
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
        <Choice label="Samples a second" of={HZ.map((each) => [each, String(each)])} chosen={hz} />
        <Choice label="Stops after" of={LENGTHS} chosen={length} />
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
  of: readonly (readonly [number, string])[];
  chosen: { value: number };
}

function Choice({ label, of, chosen }: ChoiceProps) {
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

function None() {
  return (
    <Empty title="No profile yet">
      <p>A profile samples all hosts and GPUs for a while, by a process beside the workers. From a shell:</p>
      <pre>cluster profile start night --hz 10</pre>
    </Empty>
  );
}
