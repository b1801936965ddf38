/** Tabs with the keyboard behavior that screen readers expect; each panel has its own URL. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Button } from "./button";

export interface Tab {
  id: string;
  title: string;
  /** Content after the title, such as a count. */
  note?: ComponentChildren;
}

interface TabsProps {
  label: string;
  tabs: readonly Tab[];
  current: string;
  onChange: (id: string) => void;
}

const MOVES: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1 };

function centerOf(element: HTMLElement): number {
  const { left, width } = element.getBoundingClientRect();
  return left + width / 2;
}

export function Tabs({ label, tabs, current, onChange }: TabsProps) {
  const bar = useRef<HTMLDivElement>(null);
  const scrollState = useRef({ tab: "", left: 0 });
  useLayoutEffect(() => {
    const box = bar.current;
    const selected = box?.querySelector<HTMLElement>('[aria-selected="true"]');
    if (!box || !selected) return;
    // Keep the user's scroll position until another tab is selected.
    if (scrollState.current.tab === current && scrollState.current.left !== box.scrollLeft) return;
    box.scrollLeft += centerOf(selected) - centerOf(box);
    scrollState.current = { tab: current, left: box.scrollLeft };
  });
  const selectTab = (index: number) => {
    const next = tabs[(index + tabs.length) % tabs.length];
    if (!next) return;
    onChange(next.id);
    bar.current?.querySelector<HTMLElement>(`#tab-${next.id}`)?.focus();
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    const move = MOVES[event.key];
    const index = tabs.findIndex((tab) => tab.id === current);
    if (move) selectTab(index + move);
    else if (event.key === "Home") selectTab(0);
    else if (event.key === "End") selectTab(tabs.length - 1);
    else return;
    event.preventDefault();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={bar} onKeyDown={onKey}>
      {tabs.map((tab) => (
        <Button
          role="tab"
          id={`tab-${tab.id}`}
          key={tab.id}
          aria-selected={tab.id === current}
          aria-controls={`panel-${tab.id}`}
          tabIndex={tab.id === current ? 0 : -1}
          onClick={() => onChange(tab.id)}
        >
          {tab.title}
          {tab.note !== undefined && tab.note !== "" && (
            <>
              {" "}
              <span class="soft num">{tab.note}</span>
            </>
          )}
        </Button>
      ))}
    </div>
  );
}

/** The panel of a tab. */
export function Panel({ id, children, class: name }: { id: string; children: ComponentChildren; class?: string }) {
  return (
    <section role="tabpanel" id={`panel-${id}`} aria-labelledby={`tab-${id}`} class={name}>
      {children}
    </section>
  );
}
