/** Entries of the audit log. */

export interface AuditEntry {
  seq: number;
  time: string;
  tenant: string;
  token: string;
  action: string;
  subject: string;
  outcome: string;
}

/** Return the entries of lines of the audit log, newest first. The first line can describe omitted entries. */
export function parseEntries(lines: readonly string[]): AuditEntry[] {
  return lines
    .map((line) => JSON.parse(line) as Partial<Omit<AuditEntry, "time">> & { t?: number; count?: number })
    .filter(({ seq }) => seq !== undefined)
    .map(({ seq = 0, t = 0, tenant = "", token = "", action = "", subject = "", outcome = "", count }) => ({
      seq,
      time: new Date(t).toISOString(),
      tenant,
      token,
      action,
      subject,
      outcome: count === undefined ? outcome : `${outcome}, ${count} times`,
    }))
    .reverse();
}
