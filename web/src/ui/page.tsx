/** Frame of all pages: header, connection state, shortcuts, notices and dialogs. */

import "./tokens.css";
import { computed, signal, useComputed } from "@preact/signals";
import { render, type ComponentChild, type ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { PAGES } from "../kinds";
import { loadSession, takeLinkCode, isLoggedIn, logIn, logOut, needsToken, session } from "../lib/api";
import { formatElapsed } from "../lib/format";
import { boundShortcuts, bindShortcuts } from "../lib/keys";
import {
  age,
  connection,
  lastMessageAt,
  hasSnapshot,
  now,
  connectionProblem,
  retryAt,
  reconnect,
  startLive,
} from "../lib/live";
import { chooseTheme, theme, type Theme } from "../lib/theme";
import { Button } from "./button";
import { Confirmation, Dialog } from "./dialog";
import { tables } from "./figure";
import { later } from "./later";
import { offered } from "./saving";
import { Shape } from "./state";
import { failed, toast, Toasts } from "./toast";

export { now } from "../lib/live";

const SaveDialog = later(() => import("./save").then((part) => part.SaveDialog), 0);
const LogIn = later(() => import("./login").then((part) => part.LogIn), 0);

const listing = signal(false);

/** Render a page, after the login of a one-time link if there is one. */
export function mount(page: ComponentChild): void {
  const show = () => render(page, document.getElementById("page") as HTMLElement);
  const code = takeLinkCode();
  if (code) void logIn({ code }).then(show);
  else show();
}

export function Page({ current, children }: { current: string; children: ComponentChildren }) {
  useEffect(() => {
    if (!needsToken.value) loadSession().catch(() => undefined); // the stream reports errors
  }, [needsToken.value]);
  useEffect(() => {
    startLive();
    return bindShortcuts({
      "?": { text: "this list", run: () => (listing.value = !listing.value) },
      T: {
        text: "switch between pictures and tables",
        run: () => {
          tables.value = !tables.value;
          toast(tables.value ? "Pictures are shown as tables" : "Tables are shown as pictures");
        },
      },
    });
  }, []);
  const shown = useComputed(() => (hasSnapshot.value ? age.value : "live"));
  return (
    <div data-age={shown.value}>
      <Header current={current} />
      <Banner />
      <main>{children}</main>
      <Toasts />
      <Confirmation />
      {listing.value && <KeyList />}
      {offered.value && <SaveDialog />}
      {needsToken.value && <LogIn />}
    </div>
  );
}

function Header({ current }: { current: string }) {
  return (
    <header class={`header ${isLoggedIn.value ? "with-login" : ""}`}>
      <span class="name">Threads Cluster</span>
      <nav aria-label="Pages">
        {PAGES.map(({ name, address, title }) => (
          <a key={name} href={address} aria-current={name === current ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <span class="grow" />
      <span
        class="connection"
        data-state={connection.value}
        role="status"
        title={connectionProblem.value || "following the cluster"}
      >
        <Shape of={connection.value} />
        <span>{connection.value === "denied" ? "not allowed" : connection.value}</span>
      </span>
      {isLoggedIn.value && <LogOut />}
      <ThemeSwitch />
      <Button class="plain" aria-label="Keys" onClick={() => (listing.value = true)}>
        <kbd>?</kbd>
      </Button>
    </header>
  );
}

/** Menu item that logs out the current user. */
function LogOut() {
  const { tenant, token_name: name, token_id: id, scopes } = session.value ?? {};
  return (
    <>
      {tenant && (
        <span class="roomy soft" title={`token ${name ?? id}, scopes: ${scopes?.join(", ")}`}>
          {tenant}
        </span>
      )}
      <Button class="plain" onClick={() => void logOut().catch((error: unknown) => failed("Not logged out", error))}>
        Log out
      </Button>
    </>
  );
}

const NEXT: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };

function ThemeSwitch() {
  const next = NEXT[theme.value];
  return (
    <Button class="plain" aria-label={`Theme: ${theme.value}; change to ${next}`} onClick={() => chooseTheme(next)}>
      <span class="roomy">Theme: </span>
      {theme.value}
    </Button>
  );
}

const wait = computed(() => Math.max(0, Math.ceil((retryAt.value - now.value) / 1000)));

/** Banner that explains a lost connection, the age of the data and the next attempt. */
function Banner() {
  const state = connection.value;
  if (state === "live" || state === "connecting") return null;
  const age = lastMessageAt.value
    ? ` The data on this page is ${formatElapsed(Math.max(1, (now.value - lastMessageAt.value) / 1000))} old.`
    : "";
  const what = {
    stale: "The cluster has sent nothing for 20 s.",
    reconnecting: `Not live: ${connectionProblem.value}.`,
    offline: "This machine is offline.",
    denied: needsToken.value
      ? "This cluster needs a token."
      : `The cluster refused the requests of this page: ${connectionProblem.value}.`,
  }[state];
  const again =
    state === "reconnecting" || state === "offline" || (state === "denied" && !needsToken.value)
      ? wait.value
        ? ` Trying again in ${wait.value} s.`
        : " Trying again."
      : "";
  return (
    <div class={`banner ${state === "stale" ? "" : "bad-wash"}`}>
      <span>
        {what}
        {again}
        {age}
      </span>
      {again && <Button onClick={reconnect}>Try now</Button>}
    </div>
  );
}

function spelled(name: string): ComponentChild[] {
  return name.split(" ").map((key) => <kbd key={key}>{key}</kbd>);
}

function KeyList() {
  const seen = new Map<string, { text: string }>();
  // Shortcuts bound last take precedence and are listed first.
  for (const [name, key] of boundShortcuts.value.toReversed().flatMap((set) => Object.entries(set))) {
    if (!seen.has(name)) seen.set(name, key);
  }
  return (
    <Dialog title="Keys" onClose={() => (listing.value = false)}>
      <dl class="key-list">
        {[...seen].map(([name, key]) => [
          <dt key={name}>{spelled(name)}</dt>,
          <dd key={`${name}-text`}>{key.text}</dd>,
        ])}
      </dl>
    </Dialog>
  );
}
