//! Every public future can be sent to another thread. Compiling the list is the test; `docs` checks that it names each.
#![expect(dead_code, reason = "it is compiled, not called")]

use agent_vault::{Keys, Vault, VaultConfig, WorkspaceSecrets};

fn send(_: impl Future + Send) {}

/// Stands for an argument of any type: nothing here is called.
fn of<T>() -> T {
    unreachable!()
}

fn agent_vault() {
    send(Keys::drop_session(of(), of()));
    send(Keys::rotate(of()));
    send(Keys::rotate_tenant_key(of()));

    send(Vault::open(of(), of()));
    send(Vault::is_around(of()));
    send(Vault::rotate(of()));
    send(VaultConfig::open_vault(of()));

    send(WorkspaceSecrets::names(of(), of()));
    send(WorkspaceSecrets::remove(of(), of(), of()));
    send(WorkspaceSecrets::remove_version(of(), of(), of(), of()));
    send(WorkspaceSecrets::set(of(), of(), of(), of(), of()));
    send(WorkspaceSecrets::value(of(), of(), of()));
    send(WorkspaceSecrets::value_of_version(of(), of(), of(), of()));
}
