//! Every public future can be sent to another thread: a handler of a server and a spawned task may await it.
//!
//! Compiling the list is the test: nothing in it is called. `docs` checks that it names each public future.
#![expect(dead_code, reason = "it is compiled, not called")]

use agent_mcp::Mcp;

/// Fails to compile for a future that is not `Send`.
fn send(_: impl Future + Send) {}

/// Stands for an argument of any type: nothing here is called.
fn of<T>() -> T {
    unreachable!()
}

fn agent_mcp() {
    send(Mcp::tools(of(), of()));
    send(Mcp::asked(of(), of()));
    send(Mcp::always_allow(of(), of(), of(), of()));
    send(Mcp::ask_again(of(), of(), of(), of()));
}
