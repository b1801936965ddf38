/** All GPUs as cells that show their utilization and owner. */

import { jobAddress } from "../../kinds";
import type { Gpu } from "../../lib/api";
import { formatBytes, formatPercent } from "../../lib/format";
import { StateLabel } from "../../ui/state";
import { knownJobTitle } from "./model/names";

/** True if a job holds the GPU without using it, which a mean would hide. */
function isIdle(gpu: Gpu): boolean {
  return gpu.live && gpu.job !== null && (gpu.utilization_ratio ?? 1) < 0.01;
}

export function describeGpu(gpu: Gpu): string {
  return `${gpu.worker}${gpu.index === undefined || gpu.index === null ? "" : ` #${gpu.index}`}`;
}

export function GpuOwner({ gpu }: { gpu: Gpu }) {
  if (!gpu.live) return <StateLabel state="lost" text="its worker is not live" />;
  if (!gpu.job) return <StateLabel state="idle" text="free" />;
  return (
    <>
      <a class="link" title={gpu.job} href={jobAddress(gpu.job)}>
        {knownJobTitle(gpu.job, undefined)}
      </a>
      {isIdle(gpu) && <StateLabel state="stale" text="held, idle" />}
    </>
  );
}

/** Utilization from 0 to 1; 0 if it is unknown. */
function utilization(gpu: Gpu): number {
  return gpu.live ? (gpu.utilization_ratio ?? 0) : 0;
}

/** One cell per GPU. */
export function GpuStrip({ gpus }: { gpus: readonly Gpu[] }) {
  return (
    <ul class="gpu-strip">
      {gpus.map((gpu) => (
        <li key={gpu.uuid}>
          <span class="fill" style={{ width: `${100 * utilization(gpu)}%` }} />
          <span class="small soft">{describeGpu(gpu)}</span>
          <span class="num">{(gpu.live && formatPercent(gpu.utilization_ratio)) || "not known"}</span>
          <span class="small num">{gpu.live && formatBytes(gpu.memory_used_bytes)}</span>
          <span class="small">
            <GpuOwner gpu={gpu} />
          </span>
        </li>
      ))}
    </ul>
  );
}
