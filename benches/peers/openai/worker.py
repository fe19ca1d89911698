"""Runs openai-agents for the harness: SQLiteSession on a file, which it opens with a write-ahead log.

An agent is run by the library's Runner with such a session, which is opened for each turn, as by a server that serves a request.
The orders and answers are those of `benches/worker`.
"""

import asyncio
import sqlite3
import sys
import time
from pathlib import Path

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, set_tracing_disabled
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

# The numbers of `benches/worker`.
TURNS = 16
AGENT_TURNS = 40
AGENTS_AT_ONCE = 8
AGENT_MESSAGES = 500
AGENT_TEXT = "x" * 600

TEXT = ("The quick brown fox jumps over the lazy dog. " * 24)[:1024]
# Number of refusals in a row that are no longer those of a busy file.
MOST_REFUSALS = 1000
# Number of messages that are filled in at once.
FILLED_AT_ONCE = 1000


class Order:
    """Numbers in random order, as those of `Order` in `benches/worker`."""

    BITS = (1 << 64) - 1

    def __init__(self, count):
        self.count, self.state, self.left = count, 0, []

    def random(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & self.BITS
        mixed = ((self.state ^ (self.state >> 30)) * 0xBF58476D1CE4E5B9) & self.BITS
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & self.BITS
        return mixed ^ (mixed >> 31)

    def next(self, numbers):
        if len(self.left) < numbers:
            self.left = sorted(range(self.count), key=lambda _: self.random())
        first = max(len(self.left) - numbers, 0)
        self.left, taken = self.left[:first], self.left[first:]
        return taken


class Quick(Model):
    """A model that answers at once."""

    async def get_response(self, system_instructions, input, *_, **__):
        # The prompt and all that was before it.
        if len(input) <= AGENT_MESSAGES:
            raise RuntimeError(f"{len(input)} messages are not all")
        content = ResponseOutputText(type="output_text", text=AGENT_TEXT, annotations=[])
        answer = ResponseOutputMessage(
            id="answer", type="message", role="assistant", status="completed", content=[content]
        )
        return ModelResponse(output=[answer], usage=Usage(), response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError("the runs are not streamed")


def message(number, text):
    """Returns an item as the library stores it: a prompt, or an answer if the number is odd."""
    if number % 2 == 0:
        return {"content": text, "role": "user"}
    content = [{"annotations": [], "text": text, "type": "output_text"}]
    return {"id": "answer", "content": content, "role": "assistant", "status": "completed", "type": "message"}


class OpenAi:
    """The library with a task in hand."""

    def __init__(self, folder, task, size):
        self.path, self.task, self.size = Path(folder) / "sessions.db", task, size
        self.loop = asyncio.new_event_loop()
        self.sessions, self.order = [], Order(size)
        self.agent = Agent(name="agent", model=Quick())

    def session(self, number):
        return SQLiteSession(f"session-{number}", self.path)

    async def prepare(self):
        """Returns whether the library has something for the task."""
        if self.task == "agents":
            for number in range(self.size):
                session = self.session(number)
                await session.add_items([message(n, AGENT_TEXT) for n in range(AGENT_MESSAGES)])
                session.close()
        elif self.task == "writers":
            self.sessions = [self.session(number) for number in range(self.size)]
        elif self.task in ("turn", "last", "load"):
            self.sessions = [self.session(0)]
            for first in range(0, self.size, FILLED_AT_ONCE):
                items = range(first, min(first + FILLED_AT_ONCE, self.size))
                await self.sessions[0].add_items([message(n, TEXT) for n in items])
        else:
            # Its interface ends at one session, and has no fork.
            return False
        return True

    async def append(self, session):
        """Appends a turn, and returns the number of refused calls, which are repeated."""
        refused = 0
        while True:
            try:
                await session.add_items([message(0, TEXT), message(1, TEXT)])
                return refused
            except sqlite3.OperationalError:
                refused += 1
                if refused > MOST_REFUSALS:
                    raise

    async def write(self, session, turns):
        refused, latencies = 0, []
        for _ in range(turns):
            start = time.perf_counter_ns()
            refused += await self.append(session)
            latencies.append(time.perf_counter_ns() - start)
        return refused, latencies

    async def converse(self, numbers):
        """Has turns until no conversation is left."""
        latencies = []
        while numbers:
            start = time.perf_counter_ns()
            session = self.session(numbers.pop())
            result = await Runner.run(self.agent, AGENT_TEXT, session=session)
            session.close()
            latencies.append(time.perf_counter_ns() - start)
            if result.final_output != AGENT_TEXT:
                raise RuntimeError(f"the answer is {result.final_output!r}")
        return 0, latencies

    async def run(self, times):
        """Does the task this many times. Returns refusals and latencies."""
        if self.task == "writers":
            done = await asyncio.gather(*(self.write(session, times * TURNS) for session in self.sessions))
        elif self.task == "agents":
            numbers = self.order.next(times * AGENT_TURNS)
            done = await asyncio.gather(*(self.converse(numbers) for _ in range(AGENTS_AT_ONCE)))
        else:
            session, refused = self.sessions[0], 0
            for _ in range(times):
                if self.task == "turn":
                    refused += await self.append(session)
                    continue
                wanted = 50 if self.task == "last" else self.size
                read = len(await session.get_items(50 if self.task == "last" else None))
                if read != wanted:
                    raise RuntimeError(f"{read} messages were read of {wanted}")
            return refused, []
        return sum(refused for refused, _ in done), [nanos for _, all in done for nanos in all]

    def appended(self):
        """Returns the number of messages that one order appends."""
        turns = {"turn": 1, "writers": self.size * TURNS, "agents": AGENT_TURNS}
        return 2 * turns.get(self.task, 0)

    def stored(self):
        """Counts the messages in the store."""
        file = sqlite3.connect(self.path)
        (count,) = file.execute("SELECT count(*) FROM agent_messages").fetchone()
        file.close()
        return count


def written():
    """Returns the number of bytes that this process has handed to the system to write."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.removeprefix("wchar: ")) for line in lines if line.startswith("wchar: "))


def serve(folder, task, size):
    if Order(10).next(10) != [2, 4, 6, 8, 5, 1, 7, 0, 9, 3]:
        raise RuntimeError("the order is not that of the other processes")
    set_tracing_disabled(True)
    library = OpenAi(folder, task, int(size))
    if not library.loop.run_until_complete(library.prepare()):
        print("none", flush=True)
        return
    appended, refusals, before = 0, 0, library.stored()
    print("ready", flush=True)
    for line in sys.stdin:
        times = int(line)
        written_before, start = written(), time.perf_counter_ns()
        refused, latencies = library.loop.run_until_complete(library.run(times))
        nanos = time.perf_counter_ns() - start
        appended += times * library.appended()
        refusals += refused
        print("done", nanos, written() - written_before, refused, *latencies, flush=True)
    more = library.stored() - before
    # A refused turn is had again, and may have left its prompt.
    if not appended <= more <= appended + refusals:
        raise RuntimeError(f"the store has {more} messages more, but the turns have {appended}")


if __name__ == "__main__":
    try:
        serve(*sys.argv[1:])
    except Exception as error:
        print("failed", str(error).replace("\n", " "), flush=True)
        raise
