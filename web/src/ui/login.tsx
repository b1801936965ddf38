/** Dialog for a token. */

import { useSignal } from "@preact/signals";
import { isLoggedIn, logIn, loginError } from "../lib/api";
import { Dialog } from "./dialog";

export function LoginDialog() {
  const tokenText = useSignal("");
  const error = loginError.value;
  return (
    <Dialog title="Log in">
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void logIn({ token: tokenText.value });
        }}
      >
        <div class="field">
          <label for="token">Token</label>
          <input
            id="token"
            type="password"
            autocomplete="off"
            required
            aria-describedby="token-hint"
            aria-invalid={error !== ""}
            onInput={(event) => (tokenText.value = event.currentTarget.value)}
          />
          {error && (
            <p class="error" role="alert">
              {error}
            </p>
          )}
          <p class="hint" id="token-hint">
            {isLoggedIn.value && "Your login expired: a login lasts up to 12 hours, or until its token expires. "}
            Paste a token that <code>cluster token create</code> printed, or CLUSTER_TOKEN (in containers: the file
            secrets/cluster_token). Or open the address that <code>cluster login --link</code> prints. The browser does
            not store the token.
          </p>
        </div>
        <div class="dialog-foot">
          <button type="submit" class="primary">
            Log in
          </button>
        </div>
      </form>
    </Dialog>
  );
}
