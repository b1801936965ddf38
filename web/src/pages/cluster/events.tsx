/** Recent events, one line per job, workflow and worker. */

import type { LiveEvent } from "../../lib/fleet";
import { formatClock } from "../../lib/format";
import { shortId } from "../../lib/naming";
import { TextButton } from "../../ui/button";
import { StateLabel } from "../../ui/state";
import { happenings, type Happening } from "./model/happenings";
import { hasTitle, titleOfJob } from "./model/names";
import { open, openWorkflow } from "./model/state";
import { Swatch } from "./swatch";

const MOST_LINES = 12;

export function Events({ list }: { list: readonly LiveEvent[] }) {
  const newest = happenings(list, MOST_LINES);
  if (!newest.length) return <p class="soft">Nothing has happened yet.</p>;
  return (
    <ol class="events lines">
      {newest.map((each) => (
        <li key={each.name}>
          <time class="num soft">{formatClock(each.last.time)}</time>
          <Subject of={each} />
          <span class="state-text" title={each.text}>
            <StateLabel state={each.last.state ?? ""} text={each.text} />
          </span>
        </li>
      ))}
    </ol>
  );
}

function Subject({ of: { name, last } }: { of: Happening }) {
  if (last.job)
    return (
      <span class="subject">
        <Swatch job={name} /> <TextButton onClick={() => open(name)}>{titleOfJob(name, last.kind)}</TextButton>{" "}
        {hasTitle(name) && <span class="mono soft small">{shortId(name)}</span>}
      </span>
    );
  if (last.workflow)
    return (
      <span class="subject">
        <TextButton onClick={() => openWorkflow(name)}>workflow {name}</TextButton>
      </span>
    );
  return <span class="subject mono">{name}</span>;
}
