/** Recent events, one line per job, workflow and worker. */

import { jobAddress } from "../../kinds";
import type { LiveEvent } from "../../lib/fleet";
import { formatClock } from "../../lib/format";
import { shortId } from "../../lib/naming";
import { TextButton } from "../../ui/button";
import { StateLabel } from "../../ui/state";
import { summarizeEvents, type EventSummary } from "./model/event-summaries";
import { hasTitle, knownJobTitle } from "./model/names";
import { openWorkflow } from "./model/state";
import { Swatch } from "./swatch";

const MAX_LINES = 12;

export function Events({ list }: { list: readonly LiveEvent[] }) {
  const newest = summarizeEvents(list, MAX_LINES);
  if (!newest.length) return <p class="soft">Nothing has happened yet.</p>;
  return (
    <ol class="events lines">
      {newest.map((each) => (
        <li key={each.name}>
          <time class="num soft">{formatClock(each.last.time)}</time>
          <Subject summary={each} />
          <span class="state-text" title={each.text}>
            <StateLabel state={each.last.state ?? ""} text={each.text} />
          </span>
        </li>
      ))}
    </ol>
  );
}

function Subject({ summary: { name, last } }: { summary: EventSummary }) {
  if (last.job) {
    const title = knownJobTitle(name, last.kind);
    return (
      <span class="subject">
        <Swatch job={name} />{" "}
        <a class="link" href={jobAddress(name)}>
          {title}
        </a>{" "}
        {hasTitle(name) && <span class="mono soft small">{shortId(name)}</span>}
      </span>
    );
  }
  if (last.workflow)
    return (
      <span class="subject">
        <TextButton onClick={() => openWorkflow(name)}>workflow {name}</TextButton>
      </span>
    );
  return <span class="subject mono">{name}</span>;
}
