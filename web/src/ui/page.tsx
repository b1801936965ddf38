/** Frame of all pages: header, connection state, shortcuts, notices and dialogs. */

import "./tokens.css";
import { computed, signal, useComputed } from "@preact/signals";
import { render, type ComponentChild, type ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { LABS, PAGES, type PageEntry } from "../kinds";
import {
  canOnlyInfer,
  hasScope,
  loadSession,
  takeLinkCode,
  isLoggedIn,
  logIn,
  logOut,
  needsToken,
  session,
} from "../lib/api";
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
import { ConfirmationDialog, Dialog } from "./dialog";
import { isTableMode } from "./figure";
import { lazy } from "./lazy";
import { pictureToSave } from "./picture";
import { StateIcon } from "./state";
import { showError, showToast, Toasts } from "./toast";

export { now } from "../lib/live";

const SaveDialog = lazy(() => import("./save-dialog").then((part) => part.SaveDialog), 0);
const LogIn = lazy(() => import("./login").then((part) => part.LoginDialog), 0);

const isKeyListOpen = signal(false);

/** Render a page, after the login of a one-time link if there is one. */
export function mount(page: ComponentChild): void {
  const show = () => render(page, document.getElementById("page") as HTMLElement);
  const code = takeLinkCode();
  if (code) void logIn({ code }).then(show);
  else show();
}

interface PageProps {
  /** Name of the page in the header. */
  current: string;
  /** Texts after the names of other pages. */
  notes?: Readonly<Record<string, ComponentChildren>>;
  children: ComponentChildren;
}

export function Page({ current, notes, children }: PageProps) {
  useEffect(() => {
    if (!needsToken.value) loadSession().catch(() => undefined); // the stream reports errors
  }, [needsToken.value]);
  useEffect(() => {
    startLive();
    return bindShortcuts({
      "?": { text: "this list", run: () => (isKeyListOpen.value = !isKeyListOpen.value) },
      T: {
        text: "switch between pictures and tables",
        run: () => {
          isTableMode.value = !isTableMode.value;
          showToast(isTableMode.value ? "Pictures are shown as tables" : "Tables are shown as pictures");
        },
      },
    });
  }, []);
  const displayedAge = useComputed(() => (hasSnapshot.value ? age.value : "live"));
  return (
    <div data-age={displayedAge.value}>
      <Button class="skip" onClick={() => document.querySelector("main")?.focus()}>
        Skip to content
      </Button>
      <Header current={current} notes={notes} />
      <Banner />
      <main tabIndex={-1}>{children}</main>
      <Toasts />
      <ConfirmationDialog />
      {isKeyListOpen.value && <KeyList />}
      {pictureToSave.value && <SaveDialog />}
      {needsToken.value && <LogIn />}
    </div>
  );
}

/** Return True if the header lists a page for the scopes of the login. */
function isOffered(name: string): boolean {
  if (canOnlyInfer.value) return name === "services";
  return name !== "admin" || hasScope("submit");
}

function Header({ current, notes }: Omit<PageProps, "children">) {
  const link = ({ name, address, title }: PageEntry) => (
    <a key={name} href={address} aria-current={name === current ? "page" : undefined}>
      {title}
      {notes?.[name]}
    </a>
  );
  const title = [...PAGES, ...LABS].find(({ name }) => name === current)?.title ?? "";
  return (
    <header class="header">
      {/* On narrow screens, the navigation is a popover. The browser closes it on Escape and on clicks outside. */}
      <Button class="plain menu" popovertarget="pages" aria-label={`Menu: ${title}`}>
        <svg viewBox="0 0 12 12" aria-hidden="true">
          <path d="M0 2h12M0 6h12M0 10h12" stroke="currentColor" stroke-width="1.5" />
        </svg>
        {title}
      </Button>
      <span class="name">Threads Cluster</span>
      <nav id="pages" popover="auto" aria-label="Pages" onClick={(event) => event.currentTarget.hidePopover?.()}>
        {PAGES.filter(({ name }) => isOffered(name)).map(link)}
        {!canOnlyInfer.value && <span class="soft small">Labs</span>}
        {!canOnlyInfer.value && LABS.map(link)}
      </nav>
      <span class="grow" />
      <span
        class="connection"
        data-state={connection.value}
        role="status"
        title={connectionProblem.value || "following the cluster"}
      >
        <StateIcon state={connection.value} />
        <span>{connection.value === "denied" ? "not allowed" : connection.value}</span>
      </span>
      {isLoggedIn.value && <LogoutButton />}
      <ThemeSwitch />
      <Button class="plain" aria-label="Keys" onClick={() => (isKeyListOpen.value = true)}>
        <kbd>?</kbd>
      </Button>
    </header>
  );
}

/** Menu item that logs out the current user. */
function LogoutButton() {
  const { tenant, token_name: name, token_id: id, scopes } = session.value ?? {};
  return (
    <>
      {tenant && (
        <span class="roomy soft" title={`token ${name ?? id}, scopes: ${scopes?.join(", ")}`}>
          {tenant}
        </span>
      )}
      <Button class="plain" onClick={() => void logOut().catch((error: unknown) => showError("Not logged out", error))}>
        Log out
      </Button>
    </>
  );
}

const NEXT_THEME: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };

function ThemeSwitch() {
  const next = NEXT_THEME[theme.value];
  return (
    <Button class="plain" aria-label={`Theme: ${theme.value}; change to ${next}`} onClick={() => chooseTheme(next)}>
      <span class="roomy">Theme: </span>
      {theme.value}
    </Button>
  );
}

const retrySeconds = computed(() => Math.max(0, Math.ceil((retryAt.value - now.value) / 1000)));

/** Banner that explains a lost connection, the age of the data and the next attempt. */
function Banner() {
  const state = connection.value;
  if (state === "live" || state === "connecting") return null;
  const ageText = lastMessageAt.value
    ? ` Showing data from ${formatElapsed(Math.max(1, (now.value - lastMessageAt.value) / 1000))} ago.`
    : "";
  const message = {
    stale: "The cluster has sent nothing for 20 s.",
    reconnecting: `Connection lost (${connectionProblem.value}).`,
    offline: "This machine is offline.",
    denied: needsToken.value
      ? "Log in to see this cluster."
      : `The cluster refused the requests of this page: ${connectionProblem.value}.`,
  }[state];
  const retryText =
    state === "reconnecting" || state === "offline" || (state === "denied" && !needsToken.value)
      ? retrySeconds.value
        ? ` Retrying in ${retrySeconds.value} s.`
        : " Retrying."
      : "";
  return (
    <div class={`banner ${state === "stale" ? "" : "bad-wash"}`}>
      <span>
        {message}
        {ageText}
        {retryText}
      </span>
      {retryText && <Button onClick={reconnect}>Try now</Button>}
    </div>
  );
}

function splitKeys(name: string): ComponentChild[] {
  return name.split(" ").map((key) => <kbd key={key}>{key}</kbd>);
}

function KeyList() {
  const shortcuts = new Map<string, { text: string }>();
  // Shortcuts bound last take precedence and are listed first.
  for (const [name, shortcut] of boundShortcuts.value.toReversed().flatMap((set) => Object.entries(set))) {
    if (!shortcuts.has(name)) shortcuts.set(name, shortcut);
  }
  return (
    <Dialog title="Keys" onClose={() => (isKeyListOpen.value = false)}>
      <dl class="key-list">
        {[...shortcuts].map(([name, shortcut]) => [
          <dt key={name}>{splitKeys(name)}</dt>,
          <dd key={`${name}-text`}>{shortcut.text}</dd>,
        ])}
      </dl>
    </Dialog>
  );
}
