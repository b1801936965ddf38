/** Runners with their resources and running programs. */

import { jobAddress } from "../../kinds";
import type { Worker } from "../../lib/api";
import { StateLabel } from "../../ui/state";
import { knownJobTitle } from "./model/names";
import { groupUnitsByJob, listResources } from "./model/runners";
import { displayedState } from "./model/workers";

export function Runners({ runners }: { runners: readonly Worker[] }) {
  return (
    <section class="runners">
      <h2>Runners</h2>
      {runners.map((runner) => (
        <RunnerView key={runner.id} runner={runner} />
      ))}
    </section>
  );
}

function RunnerView({ runner }: { runner: Worker }) {
  const { id, live, cordoned, retired, reserved_for: reserved } = runner;
  return (
    <section class="part" aria-label={`Runner ${id}`}>
      <div class="row">
        <h3 class="mono">{id}</h3>
        <StateLabel state={displayedState(runner)} />
        {cordoned && <span>{cordoned}</span>}
        {live && reserved && (
          <span>
            kept for <span class="mono">{reserved}</span>
          </span>
        )}
        {!live && retired && <span class="soft">{retired}</span>}
      </div>
      <dl class="facts">
        {listResources(runner).map(([name, text]) => [
          <dt key={name}>{name}</dt>,
          <dd class="num" key={`${name}=`}>
            {text}
          </dd>,
        ])}
        {live && [
          <dt key="runs">runs now</dt>,
          <dd key="runs=">
            <RunningPrograms runner={runner} />
          </dd>,
        ]}
      </dl>
    </section>
  );
}

function RunningPrograms({ runner }: { runner: Worker }) {
  const jobs = groupUnitsByJob(runner.running);
  if (!jobs.length) return <span class="soft">nothing</span>;
  return (
    <>
      {jobs.map(([job, units]) => (
        <div key={job}>
          <a class="link" href={jobAddress(job)} title={job}>
            {knownJobTitle(job, "")}
          </a>{" "}
          <span class="num">{units}</span>
        </div>
      ))}
    </>
  );
}
