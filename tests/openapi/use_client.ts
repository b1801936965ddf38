// Submits jobs with openapi-fetch and the types that openapi-typescript generated: node use_client.js URL TOKEN.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

declare const process: { argv: string[] };
const [, , baseUrl, token] = process.argv;
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
const body: components["schemas"]["Submission"] = {
  type: "collatz",
  parameters: { start_number: 1, number_count: 1000 },
  priority: null,
};
const submitted = await client.POST("/api/submit", { body, params: { query: { wait_seconds: 30 } } });
if (!submitted.data) throw new Error(submitted.error.detail);
const result = await client.GET("/api/jobs/{job_id}/result", {
  params: { path: { job_id: submitted.data.job_id } },
});
const refused = await client.POST("/api/submit", { body: { ...body, type: "nosuch" } });
const problem: components["schemas"]["Problem"] | undefined = refused.error;
console.log(JSON.stringify({ result: result.data, problem }));
