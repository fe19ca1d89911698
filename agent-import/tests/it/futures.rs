//! Every public future can be sent to another thread. Compiling the list is the test; `docs` checks that it names each.
#![expect(dead_code, reason = "it is compiled, not called")]

use agent_import::Import;

fn send(_: impl Future + Send) {}

/// Stands for an argument of any type: nothing here is called.
fn of<T>() -> T {
    unreachable!()
}

fn agent_import() {
    send(Import::run(of(), of()));
}
