/** Button that copies a text, and a text with such a button. */

import { copyText } from "../lib/export";
import { Button } from "./button";
import { showToast } from "./toast";

export function CopyButton({ text, label = "Copy", name }: { text: string; label?: string; name?: string }) {
  const copy = async () =>
    showToast((await copyText(text)) ? `Copied ${name ?? text}` : "The browser does not allow this page to copy");
  return (
    <Button aria-label={name && label === "Copy" ? `Copy ${name}` : undefined} onClick={() => void copy()}>
      {label}
    </Button>
  );
}

/** One line of code to copy, such as a command or a URL. */
export function CopyLine({ text, name }: { text: string; name: string }) {
  return (
    <span class="copy-line">
      <code>{text}</code>
      <CopyButton text={text} name={name} />
    </span>
  );
}
