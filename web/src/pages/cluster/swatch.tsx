/** The color of a job, displayed next to its name. */

import { jobColor } from "./model/colors";

export function Swatch({ job }: { job: string }) {
  const color = jobColor(job);
  if (!color) return null;
  return (
    <svg class="swatch" viewBox="0 0 12 12" aria-hidden="true">
      <rect width="12" height="12" rx="2" fill={`var(--series-${color.series})`} />
      {color.isHatched && <path d="M0 12L12 0M-3 9L9 -3M3 15L15 3" stroke="var(--bg)" stroke-width="1.5" />}
    </svg>
  );
}
