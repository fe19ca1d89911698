"""Client of `chat acp` that names an MCP server: PROGRAM, DATA_DIR and the path of the reference server are its arguments.

Prints one line for each thing that holds, and fails at the first that does not.
"""

import asyncio
import os
import sys

from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, EnvVariable, McpServerStdio, RequestPermissionResponse, SseMcpServer

STUCK = 120
program, data, path = sys.argv[1:]
server = McpServerStdio(name="Every thing", command="node", args=[path], env=[EnvVariable(name="TOKEN", value="of-the-editor")])


class Client:
    """Answers each permission request with the next option of a list."""

    def __init__(self, *options):
        self.options, self.updates, self.asked = list(options), [], 0

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)

    async def request_permission(self, session_id, tool_call, options, **_):
        assert [option.kind for option in options] == ["allow_once", "allow_always", "reject_once"], options
        self.asked += 1
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.options.pop(0)))

    def on_connect(self, _):
        pass

    def text(self):
        said = "".join(getattr(update.content, "text", None) or "" for update in self.updates
                       if update.session_update == "agent_message_chunk")
        self.updates = []
        return said


def started(client):
    return spawn_agent_process(client, program, "--data-dir", data, "--device", "laptop", "acp")


async def says(agent, client, session, text):
    answer = await agent.prompt(session_id=session, prompt=[text_block(text)])
    assert answer.stop_reason == "end_turn", answer
    return client.text()


def runs():
    """Processes of the server."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/environ", "rb") as variables, open(f"/proc/{process}/cmdline", "rb") as line:
                if b"of-the-editor" in variables.read() and path.encode() in line.read():
                    found.append(process)
        except OSError:
            pass
    return found


async def until(what, holds):
    async def wait():
        while not holds():
            await asyncio.sleep(0.02)
    try:
        await asyncio.wait_for(wait(), STUCK / 2)
    except asyncio.TimeoutError:
        raise AssertionError(what) from None


async def main():
    client = Client("allow", "allow-always", "reject")
    async with started(client) as (agent, _):
        answer = await agent.initialize(protocol_version=PROTOCOL_VERSION)
        assert answer.agent_capabilities.mcp_capabilities.http, answer
        try:
            sse = SseMcpServer(name="old", type="sse", url="http://127.0.0.1:1/sse", headers=[])
            await agent.new_session(cwd="/", mcp_servers=[sse])
            raise AssertionError("a transport that is not supported was taken")
        except RequestError as error:
            assert error.code == -32602 and "old" in str(error), error
        session = (await agent.new_session(cwd="/", mcp_servers=[server])).session_id
        for number in range(3):
            said = await says(agent, client, session, '!Every-thing__echo {"message":"number %d"}' % number)
            assert f"Echo: number {number}" in said, said
        assert client.asked == 2, client.asked
        said = await says(agent, client, session, '!Every-thing__get-sum {"a":2,"b":40}')
        assert client.asked == 3 and "42" not in said, said
        assert len(runs()) == 1, runs()
        await agent.close_session(session_id=session)
        await until("the server of a closed session ends", lambda: not runs())
    print("tools of a client's server are used after consent")

    client = Client()
    async with started(client) as (agent, _):
        await agent.initialize(protocol_version=PROTOCOL_VERSION)
        await agent.load_session(cwd="/", session_id=session, mcp_servers=[])
        await asyncio.sleep(0)
        client.text()
        # Without the server there is no such tool, and the model repeats what it was told.
        said = await says(agent, client, session, '!Every-thing__echo {"message":"nobody"}')
        assert "Echo: nobody" not in said and not runs(), said
        await agent.load_session(cwd="/", session_id=session, mcp_servers=[server])
        client.text()
        said = await says(agent, client, session, '!Every-thing__echo {"message":"again"}')
        assert "Echo: again" in said and client.asked == 0, said
    await until("the servers end with the program", lambda: not runs())
    print("a permission for good outlives the program")


asyncio.run(asyncio.wait_for(main(), STUCK))
