/**
 * Analyzes recordings of hosts and GPUs on a common time axis. Pure functions; docs/profiles.md describes the format.
 */

/** Maximum number of points on the axis, and minimum interval in seconds; kernel counters change every 10 ms. */
const MAX_POINTS = 300;
const MIN_INTERVAL = 0.5;
/** Utilization below which a device counts as idle. */
const IDLE_UTILIZATION = 0.05;
/** Interval between samples, in periods or seconds, above which samples are missing. */
const GAP_PERIODS = 5;
const GAP_SECONDS = 1.5;

interface Track {
  times: number[];
  values: number[];
}

/** Samples of one device in one recording; times are cluster time in seconds since 1970. */
export interface DeviceRecording {
  device: string;
  title: string;
  cores: number;
  hz: number;
  ticks: number[];
  tracks: Map<string, Track>;
}

export interface DeviceUsage {
  device: string;
  title: string;
  samples: number;
  /** Utilization before each point; null if unknown. */
  line: (number | null)[];
  mean: number | null;
  /** 95th percentile of the points. */
  p95: number | null;
  idle: number | null;
  memory: number | null;
  watts: number | null;
  joules: number | null;
}

export interface Analysis {
  times: number[];
  devices: DeviceUsage[];
}

type Fields = Record<string, unknown>;

function parseLine(text: string): Fields | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Fields) : undefined;
  } catch {
    return undefined; // a killed recorder left an incomplete line
  }
}

function finiteNumber(value: unknown, other: number): number {
  return typeof value === "number" && Number.isFinite(value) ? value : other;
}

function addSample(piece: DeviceRecording, time: number, figures: Fields): void {
  for (const [name, value] of Object.entries(figures)) {
    if (name === "t" || typeof value !== "number" || !Number.isFinite(value)) continue;
    const track = piece.tracks.get(name) ?? { times: [], values: [] };
    piece.tracks.set(name, track);
    track.times.push(time);
    track.values.push(value);
  }
}

/** Return the devices of a recording; empty if the text is not a recording. */
export function parseRecording(text: string): DeviceRecording[] {
  const [first = "", ...rest] = text.split("\n");
  const head = parseLine(first);
  if (head?.profile !== 1) return [];
  const host = String(head.host ?? "");
  const begin = finiteNumber(head.wall, 0) + finiteNumber(head.offset, 0);
  const createDevice = (device: string, title: string): DeviceRecording => ({
    device,
    title,
    cores: Math.max(1, finiteNumber(head.cores, 1)),
    hz: Math.max(1e-3, finiteNumber(head.hz, 1)),
    ticks: [],
    tracks: new Map(),
  });
  const gpus = (Array.isArray(head.gpus) ? head.gpus : []) as Fields[];
  const devicesByName = new Map(
    gpus.map((gpu) => {
      const name = `gpu:${String(gpu.uuid)}`;
      return [name, createDevice(name, `${host} GPU ${String(gpu.index ?? "?")}`)] as const;
    }),
  );
  const devices = Array.isArray(head.devices) ? head.devices : [`host:${host}`];
  if (devices.includes(`host:${host}`)) devicesByName.set(`host:${host}`, createDevice(`host:${host}`, host));
  for (const line of rest) {
    const sample = line && parseLine(line);
    if (!sample || typeof sample.t !== "number") continue;
    addSamples(devicesByName, begin + sample.t, sample);
  }
  return [...devicesByName.values()].filter((piece) => piece.ticks.length > 0);
}

function addSamples(devices: ReadonlyMap<string, DeviceRecording>, time: number, sample: Fields): void {
  const of = (sample.gpus ?? {}) as Record<string, Fields>;
  for (const [name, piece] of devices) {
    if (time <= (piece.ticks.at(-1) ?? -Infinity)) continue;
    piece.ticks.push(time);
    if (name.startsWith("host:")) addSample(piece, time, sample);
    else addSample(piece, time, of[name.slice("gpu:".length)] ?? {});
  }
}

/** Return the index of the last time at or before a moment; -1 before the first. */
function lastIndexAt(times: readonly number[], moment: number): number {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] as number) <= moment) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function coversRange({ ticks, hz }: DeviceRecording, begin: number, end: number): boolean {
  if (begin < (ticks[0] ?? Infinity) - 1e-6 || end > (ticks.at(-1) ?? -Infinity) + 1e-6) return false;
  const longest = Math.max(GAP_PERIODS / hz, GAP_SECONDS);
  for (let at = Math.max(0, lastIndexAt(ticks, begin)); (ticks[at] as number) < end && at + 1 < ticks.length; at += 1)
    if ((ticks[at + 1] as number) - (ticks[at] as number) > longest) return false;
  return true;
}

function growthRate(piece: DeviceRecording, name: string, begin: number, end: number): number | null {
  const track = piece.tracks.get(name);
  const before = track?.values[lastIndexAt(track.times, begin)];
  const after = track?.values[lastIndexAt(track.times, end)];
  return before === undefined || after === undefined ? null : Math.max(0, after - before) / (end - begin);
}

/** Return the time-weighted mean of a measurement. */
function timeWeightedMean(piece: DeviceRecording, name: string, begin: number, end: number): number | null {
  const track = piece.tracks.get(name);
  let at = track ? lastIndexAt(track.times, begin) : -1;
  if (!track || at < 0) return null;
  let [total, since] = [0, begin];
  for (; at + 1 < track.times.length && (track.times[at + 1] as number) <= end; at += 1) {
    const next = track.times[at + 1] as number;
    total += (track.values[at] as number) * (next - since);
    since = next;
  }
  return (total + (track.values[at] as number) * (end - since)) / (end - begin);
}

function utilization(piece: DeviceRecording, begin: number, end: number): number | null {
  if (!piece.device.startsWith("host:")) return timeWeightedMean(piece, piece.tracks.has("s") ? "s" : "u", begin, end);
  const busy = growthRate(piece, "cpu", begin, end);
  return busy === null ? null : Math.min(1, busy / piece.cores);
}

function power(piece: DeviceRecording, begin: number, end: number): number | null {
  return piece.tracks.has("w") ? timeWeightedMean(piece, "w", begin, end) : growthRate(piece, "j", begin, end);
}

type Measurement = (piece: DeviceRecording, begin: number, end: number) => number | null;

function average(values: readonly number[]): number | null {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
}

/** Analyze all recordings of a profile; undefined without samples. */
export function analyzeRecordings(all: readonly DeviceRecording[]): Analysis | undefined {
  const ends = all.map((piece) => piece.ticks.at(-1) as number);
  if (!ends.length) return undefined;
  const begin = Math.min(...all.map((piece) => piece.ticks[0] as number));
  const end = Math.max(...ends);
  const step = Math.max(MIN_INTERVAL, (end - begin) / MAX_POINTS);
  const count = Math.max(1, Math.ceil((end - begin) / step - 1e-9));
  const moments = Array.from({ length: count }, (_, index): [number, number] => {
    const from = begin + index * step;
    return [from, Math.min(from + step, end)];
  });
  const names = [...new Set(all.map((piece) => piece.device))].sort();
  const devices = names.map((name): DeviceUsage => {
    const own = all.filter((piece) => piece.device === name).sort((a, b) => (a.ticks[0] ?? 0) - (b.ticks[0] ?? 0));
    return analyzeDevice(own, moments);
  });
  return { times: moments.map(([, until]) => until), devices };
}

function analyzeDevice(own: readonly DeviceRecording[], moments: readonly [number, number][]): DeviceUsage {
  const line = (figure: Measurement) =>
    moments.map(([from, until]) => {
      const piece = until > from ? own.find((each) => coversRange(each, from, until)) : undefined;
      return piece ? figure(piece, from, until) : null;
    });
  const known = (values: readonly (number | null)[]) => values.filter((value): value is number => value !== null);
  const lengths = moments.map(([from, until]) => until - from);
  const shares = line(utilization);
  const busy = known(shares).sort((left, right) => left - right);
  const watts = line(power);
  const first = own[0] as DeviceRecording;
  return {
    device: first.device,
    title: first.title,
    samples: own.reduce((sum, piece) => sum + piece.ticks.length, 0),
    line: shares,
    mean: average(busy),
    p95: busy[Math.ceil(0.95 * busy.length) - 1] ?? null,
    idle: busy.length ? busy.filter((share) => share < IDLE_UTILIZATION).length / busy.length : null,
    memory: average(known(line((piece, from, until) => timeWeightedMean(piece, "m", from, until)))),
    watts: average(known(watts)),
    joules: known(watts).length
      ? watts.reduce<number>((sum, value, index) => sum + (value ?? 0) * (lengths[index] as number), 0)
      : null,
  };
}
