/** Moments as the page writes them. Pure. */

import { clock } from "../../../lib/format";

/** A moment: today its time alone, else with its day; empty where there is none. */
export function clockOf(moment: string | null): string {
  if (!moment) return "";
  const today = new Date(moment).toDateString() === new Date().toDateString();
  return today ? clock(moment) : `${moment.slice(0, 10)} ${clock(moment)}`;
}
