//! Every public future can be sent to another thread: a handler of a server and a spawned task may await it.
//!
//! Compiling the list is the test: nothing in it is called. `docs` checks that it names each public future.
#![expect(dead_code, reason = "it is compiled, not called")]

use agent_storage_s3::{S3Config, S3Store};

/// Fails to compile for a future that is not `Send`.
fn send(_: impl Future + Send) {}

/// Stands for an argument of any type: nothing here is called.
fn of<T>() -> T {
    unreachable!()
}

fn agent_storage_s3() {
    send(S3Store::close(of()));
    send(S3Config::open(of()));
}
