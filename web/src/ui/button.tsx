/** Buttons for actions; submit buttons of forms are plain elements. */

import type { JSX } from "preact";

type Props = JSX.IntrinsicElements["button"];

export function Button(props: Props) {
  return <button type="button" {...props} />;
}

/** A button that looks like a link. */
export function TextButton(props: Props) {
  return <Button {...props} class="link" />;
}
