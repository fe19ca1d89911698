"""Client of `chat acp` on the Python SDK of the Agent Client Protocol: PROGRAM and DATA_DIR are its arguments.

Prints one line for each thing that holds, and fails at the first that does not.
"""

import asyncio
import base64
import sys

from acp import PROTOCOL_VERSION, RequestError, image_block, resource_link_block, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, RequestPermissionResponse

STUCK = 60
program, data = sys.argv[1:]


class Client:
    """Collects the updates, and answers permission requests with an option; without one it never answers."""

    def __init__(self, option="allow"):
        self.option, self.updates, self.came, self.asked = option, [], asyncio.Event(), asyncio.Event()

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)
        self.came.set()

    async def request_permission(self, session_id, tool_call, options, **_):
        # What was sent before the question is of no interest any more.
        self.updates = []
        self.asked.set()
        assert [option.kind for option in options] == ["allow_once", "reject_once"], options
        if self.option is None:
            await asyncio.Event().wait()
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.option))

    def on_connect(self, _):
        pass

    def take(self):
        taken, self.updates = self.updates, []
        return taken

    async def until(self, fits):
        while not any(fits(update) for update in self.updates):
            self.came.clear()
            await self.came.wait()


def messages(updates):
    """The text of each message, by the kind and the id of it, in their order."""
    said = {}
    for update in updates:
        if update.session_update.endswith("_chunk"):
            assert update.message_id, update
            name = (update.session_update, update.message_id)
            text = getattr(update.content, "text", None) or f"[{update.content.type}]"
            said[name] = said.get(name, "") + text
    return said


def says(kind, text):
    """Whether an update is a piece of this kind with this text in it."""
    return lambda update: update.session_update == kind and text in (getattr(update.content, "text", None) or "")


def has_status(status):
    return lambda update: update.session_update == "tool_call_update" and update.status == status


def started(client, *options):
    return spawn_agent_process(
        client, program, "--data-dir", data, "--device", "laptop", *options, "acp", *(["--ask"] if client.asks else [])
    )


def client(option="allow", asks=False):
    made = Client(option)
    made.asks = asks
    return made


async def initialized(agent):
    answer = await agent.initialize(protocol_version=PROTOCOL_VERSION)
    assert answer.protocol_version == 1 and answer.agent_info.name == "chat", answer
    sessions = answer.agent_capabilities.session_capabilities
    assert answer.agent_capabilities.load_session and sessions.list is not None and sessions.resume is not None
    return answer


async def fails(code, *names, of):
    try:
        await of
    except RequestError as error:
        text = f"{error} {error.data}"
        assert error.code == code and all(name in text for name in names), (error.code, text)
        return
    raise AssertionError(f"{names}: no error")


async def conversation():
    seen = client()
    async with started(seen) as (agent, process):
        await initialized(agent)
        session = (await agent.new_session(cwd="/work")).session_id
        answer = await agent.prompt(session_id=session, prompt=[text_block("Hello there, you")])
        assert answer.stop_reason == "end_turn", answer
        live = messages(seen.take())
        assert list(live.values()) == ["Hello there, you"], live
        await agent.prompt(session_id=session, prompt=[text_block("!time")])
        tool = seen.take()
        assert any(has_status("completed")(update) for update in tool), tool
        png = base64.b64encode(b"\x89PNG").decode()
        blocks = [text_block("See"), image_block(png, "image/png"), resource_link_block("a.rs", "file:///work/a.rs")]
        assert (await agent.prompt(session_id=session, prompt=blocks)).stop_reason == "end_turn"
        await fails(-32602, "nothing", of=agent.load_session(cwd="/work", session_id="nothing"))
        gone = "00000000-0000-7000-8000-000000000000"
        await fails(-32002, gone, of=agent.prompt(session_id=gone, prompt=[text_block("?")]))
    assert process.returncode == 0, process.returncode
    print("a conversation is streamed")

    seen = client()
    async with started(seen) as (agent, process):
        await initialized(agent)
        listed = (await agent.list_sessions(cwd="/work")).sessions
        assert [found.session_id for found in listed] == [session] and listed[0].cwd == "/work", listed
        await agent.load_session(cwd="/work", session_id=session)
        await seen.until(says("agent_message_chunk", "See"))
        loaded = messages(seen.take())
        assert [kind for kind, _ in list(loaded)[:2]] == ["user_message_chunk", "agent_message_chunk"], loaded
        assert live.items() <= loaded.items(), (live, loaded)
        assert any("[image]" in text and "[resource_link]" in text for text in loaded.values()), loaded
        fork = (await agent.fork_session(cwd="/work", session_id=session)).session_id
        await agent.prompt(session_id=fork, prompt=[text_block("In the fork")])
        await agent.close_session(session_id=fork)
        await agent._conn.send_request("session/delete", {"sessionId": fork})
        assert len((await agent.list_sessions()).sessions) == 1
    print("a session is loaded with the same ids")
    return session


async def cancelled(session):
    seen = client()
    async with started(seen, "--echo-delay-ms", "20") as (agent, _):
        await initialized(agent)
        await agent.resume_session(cwd="/work", session_id=session)
        assert not seen.updates
        words = " ".join(f"word{n}" for n in range(2000))
        turn = asyncio.create_task(agent.prompt(session_id=session, prompt=[text_block(words)]))
        await seen.until(lambda update: update.session_update == "agent_message_chunk")
        await fails(-32600, session, of=agent.prompt(session_id=session, prompt=[text_block("Meanwhile?")]))
        await agent.cancel(session_id=session)
        assert (await turn).stop_reason == "cancelled"
    print("a turn is cancelled")


async def killed(session):
    seen = client()
    async with started(seen, "--echo-delay-ms", "20") as (agent, process):
        await initialized(agent)
        await agent.resume_session(cwd="/work", session_id=session)
        words = " ".join(f"lost{n}" for n in range(2000))
        turn = asyncio.create_task(agent.prompt(session_id=session, prompt=[text_block(words)]))
        await seen.until(lambda update: update.session_update == "agent_message_chunk")
        process.kill()
        await asyncio.gather(turn, return_exceptions=True)
    seen = client()
    async with started(seen) as (agent, _):
        await initialized(agent)
        await agent.load_session(cwd="/work", session_id=session)
        await seen.until(says("user_message_chunk", "lost1999"))
        seen.take()
        answer = await agent.prompt(session_id=session, prompt=[text_block("Go on")])
        assert answer.stop_reason == "end_turn", answer
        said = " ".join(messages(seen.take()).values())
        assert "Go on" in said, said
    print("a session goes on after a kill in the middle of a turn")


async def killed_in_a_tool(session):
    seen = client()
    async with started(seen) as (agent, process):
        await initialized(agent)
        await agent.resume_session(cwd="/work", session_id=session)
        turn = asyncio.create_task(agent.prompt(session_id=session, prompt=[text_block("!sleep 600")]))
        await seen.until(lambda update: update.session_update == "tool_call")
        process.kill()
        await asyncio.gather(turn, return_exceptions=True)
    seen = client()
    async with started(seen) as (agent, _):
        await initialized(agent)
        await agent.load_session(cwd="/work", session_id=session)
        await seen.until(says("user_message_chunk", "!sleep 600"))
        answer = await agent.prompt(session_id=session, prompt=[text_block("And now?")])
        assert answer.stop_reason == "end_turn", answer
        # The call that was cut off has a result, which says that nothing is known of it.
        came = seen.take()
        failed = [update for update in came if has_status("failed")(update)]
        assert len(failed) == 1 and "outcome unknown" in str(failed[0]), failed
        assert "And now?" in " ".join(messages(came).values())
    print("a session goes on after a kill in the middle of a tool")


async def permitted(session):
    seen = client(option=None, asks=True)
    async with started(seen) as (agent, process):
        await initialized(agent)
        await agent.resume_session(cwd="/work", session_id=session)
        turn = asyncio.create_task(agent.prompt(session_id=session, prompt=[text_block("!time")]))
        await seen.asked.wait()
        process.kill()
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
    seen = client(asks=True)
    async with started(seen) as (agent, _):
        await initialized(agent)
        await agent.load_session(cwd="/work", session_id=session)
        await seen.asked.wait()
        await seen.until(has_status("completed"))
        await seen.until(says("agent_message_chunk", "tool returned"))
    seen = client(option="reject", asks=True)
    async with started(seen) as (agent, _):
        await initialized(agent)
        await agent.resume_session(cwd="/work", session_id=session)
        answer = await agent.prompt(session_id=session, prompt=[text_block("!time")])
        assert answer.stop_reason == "end_turn" and seen.asked.is_set(), answer
        assert any(has_status("failed")(update) for update in seen.take())
    print("a permission outlives a kill, and a refusal is heard")


async def main():
    session = await conversation()
    await cancelled(session)
    await killed(session)
    await killed_in_a_tool(session)
    await permitted(session)


asyncio.run(asyncio.wait_for(main(), 4 * STUCK))
