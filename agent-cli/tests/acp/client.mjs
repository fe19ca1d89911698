// Client of `chat acp` on the TypeScript SDK of the Agent Client Protocol: PROGRAM and DATA_DIR are its arguments, and the
// variable ACP_SDK is the SDK's folder.
//
// Prints one line for each thing that holds, and fails at the first that does not.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const STUCK = 240_000;
const acp = await import(pathToFileURL(join(process.env.ACP_SDK, "dist/v1/stable/acp.js")));
const { session: methods } = acp.methods.agent;
const [program, data] = process.argv.slice(2);

setTimeout(() => {
  console.error("stuck");
  process.exit(1);
}, STUCK).unref();

// Starts the program, and answers permission requests with an option; without one it never answers.
async function started(options, option, work) {
  const asks = option !== undefined ? ["--ask"] : [];
  const child = spawn(program, ["--data-dir", data, "--device", "laptop", ...options, "acp", ...asks], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  // A killed program reads nothing more.
  child.stdin.on("error", () => {});
  const seen = { updates: [], asked: 0, came: () => {} };
  const client = acp
    .client({ name: "test" })
    .onNotification(acp.methods.client.session.update, ({ params }) => {
      seen.updates.push(params.update);
      seen.came();
    })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
      assert.deepEqual(params.options.map((option) => option.kind), ["allow_once", "reject_once"]);
      seen.asked += 1;
      // What was sent before the question is of no interest any more.
      seen.updates = [];
      seen.came();
      if (option === null) return new Promise(() => {});
      return { outcome: { outcome: "selected", optionId: option } };
    });
  const until = async (fits) => {
    while (!fits(seen)) await new Promise((came) => (seen.came = came));
  };
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  const connection = client.connect(stream);
  const ended = once(child, "exit");
  const agent = {
    request: (method, params) => connection.agent.request(method, params),
    notify: (method, params) => connection.agent.notify(method, params),
    prompt: (sessionId, ...prompt) => connection.agent.request(methods.prompt, { sessionId, prompt }),
  };
  const capabilities = await agent.request(acp.methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: {},
  });
  assert.equal(capabilities.protocolVersion, 1);
  assert.equal(capabilities.agentInfo.name, "chat");
  assert.ok(capabilities.agentCapabilities.loadSession);
  try {
    await work(agent, seen, until, child);
  } finally {
    child.stdin.end();
  }
  const [code] = await ended;
  return code;
}

const text = (text) => ({ type: "text", text });

// The text of each message, by the kind and the id of it, in their order.
function messages(seen) {
  const said = new Map();
  for (const update of seen.updates.splice(0)) {
    if (!update.sessionUpdate.endsWith("_chunk")) continue;
    assert.ok(update.messageId, JSON.stringify(update));
    const name = `${update.sessionUpdate} ${update.messageId}`;
    said.set(name, (said.get(name) ?? "") + (update.content.text ?? `[${update.content.type}]`));
  }
  return said;
}

const says = (kind, part) => (seen) =>
  seen.updates.some((update) => update.sessionUpdate === kind && (update.content?.text ?? "").includes(part));
const hasStatus = (status) => (seen) =>
  seen.updates.some((update) => update.sessionUpdate === "tool_call_update" && update.status === status);

async function fails(code, name, promise) {
  const error = await promise.then(() => null, (error) => error);
  assert.ok(error, `${name}: no error`);
  assert.equal(error.code, code, `${error}`);
  assert.ok(`${error.message} ${JSON.stringify(error.data)}`.includes(name), `${error}`);
}

let session;
let live;
let code = await started([], undefined, async (agent, seen) => {
  session = (await agent.request(methods.new, { cwd: "/work", mcpServers: [] })).sessionId;
  assert.equal((await agent.prompt(session, text("Hello there, you"))).stopReason, "end_turn");
  live = messages(seen);
  assert.deepEqual([...live.values()], ["Hello there, you"]);
  await agent.prompt(session, text("!time"));
  assert.ok(hasStatus("completed")(seen));
  messages(seen);
  const png = Buffer.from([0x89, 0x50, 0x4e, 0x47]).toString("base64");
  const link = { type: "resource_link", name: "a.rs", uri: "file:///work/a.rs" };
  const image = { type: "image", data: png, mimeType: "image/png" };
  assert.equal((await agent.prompt(session, text("See"), image, link)).stopReason, "end_turn");
  await fails(-32602, "nothing", agent.request(methods.load, { cwd: "/work", sessionId: "nothing", mcpServers: [] }));
  const gone = "00000000-0000-7000-8000-000000000000";
  await fails(-32002, gone, agent.prompt(gone, text("?")));
});
assert.equal(code, 0);
console.log("a conversation is streamed");

code = await started([], undefined, async (agent, seen, until) => {
  const listed = (await agent.request(methods.list, { cwd: "/work" })).sessions;
  assert.deepEqual(listed.map((found) => [found.sessionId, found.cwd]), [[session, "/work"]]);
  await agent.request(methods.load, { cwd: "/work", sessionId: session, mcpServers: [] });
  await until(says("agent_message_chunk", "See"));
  const loaded = messages(seen);
  assert.deepEqual([...loaded.keys()].slice(0, 2).map((name) => name.split(" ")[0]), [
    "user_message_chunk",
    "agent_message_chunk",
  ]);
  for (const [name, said] of live) assert.equal(loaded.get(name), said);
  assert.ok([...loaded.values()].some((said) => said.includes("[image]") && said.includes("[resource_link]")));
  const fork = (await agent.request("session/fork", { cwd: "/work", sessionId: session })).sessionId;
  await agent.prompt(fork, text("In the fork"));
  await agent.request(methods.close, { sessionId: fork });
  await agent.request(methods.delete, { sessionId: fork });
  assert.equal((await agent.request(methods.list, {})).sessions.length, 1);
});
assert.equal(code, 0);
console.log("a session is loaded with the same ids");

const resumed = (agent) => agent.request(methods.resume, { cwd: "/work", sessionId: session, mcpServers: [] });
const words = (word) => Array.from({ length: 2000 }, (_, n) => `${word}${n}`).join(" ");

await started(["--echo-delay-ms", "20"], undefined, async (agent, seen, until) => {
  await resumed(agent);
  assert.equal(seen.updates.length, 0);
  const turn = agent.prompt(session, text(words("word")));
  await until(says("agent_message_chunk", ""));
  await fails(-32600, session, agent.prompt(session, text("Meanwhile?")));
  await agent.notify(methods.cancel, { sessionId: session });
  assert.equal((await turn).stopReason, "cancelled");
});
console.log("a turn is cancelled");

await started(["--echo-delay-ms", "20"], undefined, async (agent, seen, until, child) => {
  await resumed(agent);
  const turn = agent.prompt(session, text(words("lost"))).catch(() => {});
  await until(says("agent_message_chunk", ""));
  child.kill("SIGKILL");
  await turn;
});
await started([], undefined, async (agent, seen, until) => {
  await agent.request(methods.load, { cwd: "/work", sessionId: session, mcpServers: [] });
  await until(says("user_message_chunk", "lost1999"));
  messages(seen);
  assert.equal((await agent.prompt(session, text("Go on"))).stopReason, "end_turn");
  assert.ok([...messages(seen).values()].join(" ").includes("Go on"));
});
console.log("a session goes on after a kill in the middle of a turn");

await started([], undefined, async (agent, seen, until, child) => {
  await resumed(agent);
  const turn = agent.prompt(session, text("!sleep 600")).catch(() => {});
  await until((seen) => seen.updates.some((update) => update.sessionUpdate === "tool_call"));
  child.kill("SIGKILL");
  await turn;
});
await started([], undefined, async (agent, seen, until) => {
  await agent.request(methods.load, { cwd: "/work", sessionId: session, mcpServers: [] });
  await until(says("user_message_chunk", "!sleep 600"));
  messages(seen);
  assert.equal((await agent.prompt(session, text("And now?"))).stopReason, "end_turn");
  // The call that was cut off has a result, which says that nothing is known of it.
  const failed = seen.updates.filter((update) => hasStatus("failed")({ updates: [update] }));
  assert.ok(failed.length === 1 && JSON.stringify(failed).includes("outcome unknown"), JSON.stringify(failed));
  assert.ok([...messages(seen).values()].join(" ").includes("And now?"));
});
console.log("a session goes on after a kill in the middle of a tool");

await started([], null, async (agent, seen, until, child) => {
  await resumed(agent);
  const turn = agent.prompt(session, text("!time")).catch(() => {});
  await until((seen) => seen.asked > 0);
  child.kill("SIGKILL");
  await turn;
});
await started([], "allow", async (agent, seen, until) => {
  await agent.request(methods.load, { cwd: "/work", sessionId: session, mcpServers: [] });
  await until((seen) => seen.asked > 0);
  await until(hasStatus("completed"));
  await until(says("agent_message_chunk", "tool returned"));
});
await started([], "reject", async (agent, seen) => {
  await resumed(agent);
  assert.equal((await agent.prompt(session, text("!time"))).stopReason, "end_turn");
  assert.equal(seen.asked, 1);
  assert.ok(hasStatus("failed")(seen));
});
console.log("a permission outlives a kill, and a refusal is heard");
process.exit(0);
