/** Lists that administrators and users manage: tokens, tenants, secrets, artifacts and the audit log. */

import { hasScope } from "../../../lib/api";
import { Panel, Tabs } from "../../../ui/tabs";
import { EmptyMessage } from "../../../ui/table";
import { state } from "../model/state";
import { Artifacts } from "./artifacts";
import { AuditLog } from "./audit-log";
import { Secrets } from "./secrets";
import { Tenants } from "./tenants";
import { Tokens } from "./tokens";

/** Lists with the scopes of which their users need one. The scope admin includes all others. */
const LISTS = [
  { id: "tokens", title: "Tokens", scope: "admin", content: Tokens },
  { id: "tenants", title: "Tenants", scope: "read", content: Tenants },
  { id: "secrets", title: "Secrets", scope: "run", content: Secrets },
  { id: "artifacts", title: "Artifacts", scope: "read", content: Artifacts },
  { id: "audit", title: "Audit log", scope: "admin", content: AuditLog },
] as const;

export function Admin() {
  const lists = LISTS.filter(({ scope }) => hasScope(scope));
  const current = lists.find(({ id }) => id === state.list.value) ?? lists[0];
  if (!current) return <EmptyMessage title="Your token has no scope for these lists" />;
  const open = (id: string) => {
    state.list.value = id;
    state.commit();
  };
  return (
    <>
      <Tabs label="Admin" tabs={lists} current={current.id} onChange={open} />
      <Panel id={current.id} class="stack machines">
        <current.content />
      </Panel>
    </>
  );
}
