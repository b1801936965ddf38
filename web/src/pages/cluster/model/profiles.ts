/** Profiles in the API and the files of their recordings. Pure functions except for requests. */

import { getBytes, deleteResource, get, post, type Profile, type Recording } from "../../../lib/api";
import { formatPercent } from "../../../lib/format";
import { analyzeRecordings, parseRecording, type Analysis } from "./recording";

/** Maximum size in bytes of recordings that the page loads; the command can analyze larger ones. */
export const MAX_BYTES = 64 << 20;

export interface NewProfile {
  name: string;
  hz: number;
  seconds: number;
}

function profilePath(name: string): string {
  return `/api/profiles/${encodeURIComponent(name)}`;
}

export async function loadProfiles(signal?: AbortSignal): Promise<readonly Profile[]> {
  return (await get<{ profiles: readonly Profile[] }>("/api/profiles", {}, signal)).profiles;
}

export function startProfile(profile: NewProfile): Promise<Profile> {
  return post("/api/profiles", profile);
}

export function controlProfile(name: string, verb: "stop" | "recover"): Promise<Profile> {
  return post(`${profilePath(name)}/${verb}`);
}

export function deleteProfile(name: string): Promise<void> {
  return deleteResource(profilePath(name));
}

/** Return an unused profile name such as `p-1123-1702`, based on the time, with a suffix if needed. */
export function unusedName(taken: readonly string[], now: Date): string {
  const two = (value: number) => String(value).padStart(2, "0");
  const name = `p-${two(now.getMonth() + 1)}${two(now.getDate())}-${two(now.getHours())}${two(now.getMinutes())}`;
  for (let number = 2, free = name; ; number += 1) {
    if (!taken.includes(free)) return free;
    free = `${name}-${number}`;
  }
}

/** Return the profiler's own CPU usage as a share of one core; empty without samples. */
export function profilerShare(recordings: readonly Pick<Recording, "cpu_seconds" | "seconds">[]): string {
  const sampled = recordings.reduce((sum, one) => sum + one.seconds, 0);
  return sampled ? formatPercent(recordings.reduce((sum, one) => sum + one.cpu_seconds, 0) / sampled, 1) : "";
}

interface RecordingEntry {
  path: string;
  sha: string;
}

/** Return the recordings in an artifact's manifest, a file of JSON lines with ["f", path, size, sha256] for files. */
export function parseManifest(manifest: string): RecordingEntry[] {
  return manifest.split("\n").flatMap((line) => {
    if (!line.startsWith('["f"')) return [];
    const [, file, , sha] = JSON.parse(line) as [string, string, number, string];
    return file.endsWith(".jsonl.gz") ? [{ path: file, sha }] : [];
  });
}

async function loadEntries(artifact: string, signal?: AbortSignal): Promise<RecordingEntry[]> {
  return parseManifest(new TextDecoder().decode(await getBytes(`/api/artifacts/${artifact}/manifest`, {}, signal)));
}

/** Return the recordings of a finished profile as files. */
export async function loadRecordings(artifact: string): Promise<{ name: string; data: Blob }[]> {
  const found = await loadEntries(artifact);
  return Promise.all(
    found.map(async ({ path: name, sha }) => ({ name, data: new Blob([await getBytes(`/api/files/${sha}`)]) })),
  );
}

async function decompress(data: ArrayBuffer): Promise<string> {
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

/** Analyze the recordings of an artifact; undefined without samples. */
export async function analyzeArtifact(artifact: string, signal?: AbortSignal): Promise<Analysis | undefined> {
  const found = await loadEntries(artifact, signal);
  const all = await Promise.all(
    found.map(async ({ sha }) => parseRecording(await decompress(await getBytes(`/api/files/${sha}`, {}, signal)))),
  );
  return analyzeRecordings(all.flat());
}
