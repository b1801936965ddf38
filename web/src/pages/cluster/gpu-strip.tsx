/** All GPUs as cells that show their utilization and owner. */

import type { Gpu } from "../../lib/api";
import { formatBytes, formatPercent } from "../../lib/format";
import { TextButton } from "../../ui/button";
import { StateLabel } from "../../ui/state";
import { titleOfJob } from "./model/names";
import { open } from "./model/state";

/** True if a job holds the GPU without using it, which a mean would hide. */
function idle(gpu: Gpu): boolean {
  return gpu.live && gpu.job !== null && (gpu.utilization_ratio ?? 1) < 0.01;
}

export function title(gpu: Gpu): string {
  return `${gpu.worker}${gpu.index === undefined || gpu.index === null ? "" : ` #${gpu.index}`}`;
}

export function Owner({ gpu }: { gpu: Gpu }) {
  if (!gpu.live) return <StateLabel state="lost" text="its worker is not live" />;
  if (!gpu.job) return <StateLabel state="idle" text="free" />;
  return (
    <>
      <TextButton title={gpu.job} onClick={() => open(gpu.job ?? "")}>
        {titleOfJob(gpu.job, undefined)}
      </TextButton>
      {idle(gpu) && <StateLabel state="stale" text="held, idle" />}
    </>
  );
}

/** Utilization from 0 to 1; 0 if it is unknown. */
function used(gpu: Gpu): number {
  return gpu.live ? (gpu.utilization_ratio ?? 0) : 0;
}

/** One cell per GPU. */
export function GpuStrip({ gpus }: { gpus: readonly Gpu[] }) {
  return (
    <ul class="gpu-strip">
      {gpus.map((gpu) => (
        <li key={gpu.uuid}>
          <span class="fill" style={{ width: `${100 * used(gpu)}%` }} />
          <span class="small soft">{title(gpu)}</span>
          <span class="num">{(gpu.live && formatPercent(gpu.utilization_ratio)) || "not known"}</span>
          <span class="small num">{gpu.live && formatBytes(gpu.memory_used_bytes)}</span>
          <span class="small">
            <Owner gpu={gpu} />
          </span>
        </li>
      ))}
    </ul>
  );
}
