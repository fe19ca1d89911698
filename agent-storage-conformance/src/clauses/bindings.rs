//! Devices and their bindings: promises of the trait besides the contracts.

use std::collections::BTreeSet;

use agent_core::commit::Precondition;
use agent_core::store::{Binding, BindingQuery, WorkspaceQuery};
use agent_core::{DeviceId, Error, ErrorKind, Storage, WorkspaceId};

use crate::failure::{Checked, Failure, holds_for, refused, same};
use crate::registry::{Clause, table};
use crate::stage::{Stage, ends, race, split};

pub(super) fn clauses() -> Vec<Clause> {
    table![Bindings:
        unknown_device_has_no_binding,
        the_last_bind_wins,
        bind_with_a_failed_precondition_changes_nothing,
        a_first_contact_never_moves_a_binding,
        unbind_returns_whether_it_was_bound,
        unbind_workspace_unbinds_only_its_devices,
        unbinding_a_workspace_never_erases_a_newer_bind,
        concurrent_binds_of_many_devices_are_never_lost,
        the_last_session_belongs_to_the_binding,
        bindings_are_listed_once_in_a_stable_order,
        hostile_device_ids_are_kept_apart,
        bad_device_ids_never_reach_a_store,
        cursors_of_other_queries_are_refused,
    ]
}

/// Returns all bindings of a query, read by pages.
pub(super) async fn all_bindings(storage: &Storage, query: BindingQuery) -> Checked<Vec<Binding>> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = storage.bindings.list(query.clone().with_cursor(cursor)).await?;
        if page.items.len() > query.limit {
            return Err(Failure::new(
                "a page of bindings",
                format_args!("at most {}", query.limit),
                page.items.len(),
            ));
        }
        found.extend(page.items);
        ends(found.len())?;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

/// A device that was never bound has no binding; that is not an error.
async fn unknown_device_has_no_binding(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let device = stage.device("never seen")?;
    same("what it is bound to", &storage.bindings.resolve(&device).await?, &None)?;
    same("whether it was bound", &storage.bindings.unbind(&device).await?, &false)?;
    same("all bindings", &all_bindings(&storage, BindingQuery::new()).await?, &vec![])
}

/// The session that was recorded for a device is returned to every handle, until the device is unbound or bound to another
/// workspace. A store may keep none at all.
async fn the_last_session_belongs_to_the_binding(stage: &Stage) -> Checked {
    let (storage, other) = (stage.open().await?, stage.open().await?);
    let device = stage.device("a device \u{1F600}")?;
    let (home, office) = (stage.effects.new_workspace_id(), stage.effects.new_workspace_id());
    let (first, second) = (stage.effects.new_session_id(), stage.effects.new_session_id());
    let last =
        async |what: &str, expected| same(what, &other.bindings.last_session(&device).await?, &expected);
    storage.bindings.set_last_session(&device, first).await?;
    last("the last session of a device that was never bound", None).await?;
    storage.bindings.bind(&device, home, Precondition::None).await?;
    last("the last session of a new binding", None).await?;
    storage.bindings.set_last_session(&device, first).await?;
    if other.bindings.last_session(&device).await?.is_none() {
        // It keeps none.
        return Ok(());
    }
    last("the last session", Some(first)).await?;
    storage.bindings.set_last_session(&device, second).await?;
    last("the next one", Some(second)).await?;
    storage.bindings.bind(&device, home, Precondition::None).await?;
    last("after a binding to the same workspace", Some(second)).await?;
    let neighbour = stage.device("a neighbour")?;
    storage.bindings.bind(&neighbour, home, Precondition::None).await?;
    same("that of another device", &other.bindings.last_session(&neighbour).await?, &None)?;
    storage.bindings.bind(&device, office, Precondition::None).await?;
    last("after a binding to another workspace", None).await?;
    storage.bindings.bind(&device, home, Precondition::None).await?;
    last("back there", None).await?;
    storage.bindings.set_last_session(&device, first).await?;
    storage.bindings.unbind(&device).await?;
    last("after an unbinding", None).await?;
    storage.bindings.bind(&device, home, Precondition::None).await?;
    last("bound again", None).await?;
    storage.bindings.set_last_session(&device, first).await?;
    storage.bindings.unbind_workspace(home).await?;
    storage.bindings.bind(&device, home, Precondition::None).await?;
    last("after all of the workspace were unbound", None).await
}

/// With `Precondition::None` the last bind wins, and binding a device to its current workspace succeeds.
async fn the_last_bind_wins(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let device = stage.device("laptop")?;
    for _ in 0..5 {
        let workspace = stage.effects.new_workspace_id();
        for expect in [
            Precondition::None,
            Precondition::MustExist,
            Precondition::Matches(workspace),
            Precondition::MustNotExist,
        ] {
            let bound = storage.bindings.bind(&device, workspace, expect).await?;
            same("what is bound then", &bound, &workspace)?;
        }
        storage = stage.reopen(storage).await?;
        same("what it is bound to", &storage.bindings.resolve(&device).await?, &Some(workspace))?;
    }
    same("the number of bindings", &all_bindings(&storage, BindingQuery::new()).await?.len(), &1)
}

/// A rebind whose expectation does not hold is a `Conflict`, also for a device that is not bound.
async fn bind_with_a_failed_precondition_changes_nothing(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let device = stage.device("laptop")?;
    let ids: Vec<WorkspaceId> = (0..3).map(|_| stage.effects.new_workspace_id()).collect();
    let unbound = storage.bindings.bind(&device, ids[0], Precondition::Matches(ids[1])).await;
    refused!("a rebind of an unbound device", unbound, ErrorKind::Conflict { .. })?;
    same("what it is bound to", &storage.bindings.resolve(&device).await?, &None)?;
    storage.bindings.bind(&device, ids[0], Precondition::MustNotExist).await?;
    let other = storage.bindings.bind(&device, ids[2], Precondition::Matches(ids[1])).await;
    refused!("a rebind that expects another workspace", other, ErrorKind::Conflict { .. })?;
    same("what it is bound to", &storage.bindings.resolve(&device).await?, &Some(ids[0]))?;
    storage.bindings.bind(&device, ids[2], Precondition::Matches(ids[0])).await?;
    same("what it is bound to", &storage.bindings.resolve(&device).await?, &Some(ids[2]))
}

/// A bind that expects no binding returns the winner's workspace if there is one, and leaves it unchanged.
async fn a_first_contact_never_moves_a_binding(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    let device = stage.device("phone")?;
    let (first, second) = (stage.effects.new_workspace_id(), stage.effects.new_workspace_id());
    same(
        "the first contact",
        &handles[0].bindings.bind(&device, first, Precondition::MustNotExist).await?,
        &first,
    )?;
    same(
        "the second contact",
        &handles[1].bindings.bind(&device, second, Precondition::MustNotExist).await?,
        &first,
    )?;
    same("what it is bound to", &handles[0].bindings.resolve(&device).await?, &Some(first))
}

/// An unbound device has no binding, and can be bound again.
async fn unbind_returns_whether_it_was_bound(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let device = stage.device("laptop")?;
    let workspace = stage.effects.new_workspace_id();
    storage.bindings.bind(&device, workspace, Precondition::MustNotExist).await?;
    same("whether it was bound", &storage.bindings.unbind(&device).await?, &true)?;
    storage = stage.reopen(storage).await?;
    same("what it is bound to", &storage.bindings.resolve(&device).await?, &None)?;
    same("whether it was bound", &storage.bindings.unbind(&device).await?, &false)?;
    same(
        "bound again",
        &storage.bindings.bind(&device, workspace, Precondition::MustNotExist).await?,
        &workspace,
    )
}

/// All devices of a workspace are unbound in one step, and counted; those of other workspaces stay bound.
async fn unbind_workspace_unbinds_only_its_devices(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let (left, kept) = (stage.effects.new_workspace_id(), stage.effects.new_workspace_id());
    for n in 0..20 {
        let to = if n % 2 == 0 { left } else { kept };
        storage.bindings.bind(&stage.device(&format!("device {n}"))?, to, Precondition::MustNotExist).await?;
    }
    same("how many were unbound", &storage.bindings.unbind_workspace(left).await?, &10)?;
    same("how many were unbound the second time", &storage.bindings.unbind_workspace(left).await?, &0)?;
    storage = stage.reopen(storage).await?;
    for n in 0..20 {
        let bound = storage.bindings.resolve(&stage.device(&format!("device {n}"))?).await?;
        same(format_args!("device {n}"), &bound, &(n % 2 == 1).then_some(kept))?;
    }
    Ok(())
}

/// A device that is bound to another workspace while its old workspace is unbound stays bound to the new one, in
/// either order.
async fn unbinding_a_workspace_never_erases_a_newer_bind(stage: &Stage) -> Checked {
    let handles = stage.handles(2).await?;
    // One device: unbinding a workspace may have to read all that ever were.
    let device = stage.device("device")?;
    for round in 0..stage.settings.rounds {
        let (old, new) = (stage.effects.new_workspace_id(), stage.effects.new_workspace_id());
        handles[0].bindings.bind(&device, old, Precondition::None).await?;
        let (unbinder, binder) = (handles[0].bindings.clone(), handles[1].bindings.clone());
        let moved = device.clone();
        let tasks: [futures::future::BoxFuture<'static, agent_core::Result<()>>; 2] = [
            Box::pin(async move { unbinder.unbind_workspace(old).await.map(drop) }),
            Box::pin(async move { binder.bind(&moved, new, Precondition::None).await.map(drop) }),
        ];
        let (_, failed) = split(race(tasks).await?);
        holds_for("neither fails", &failed, failed.is_empty())?;
        let bound = handles[round % 2].bindings.resolve(&device).await?;
        same(format_args!("round {round}: what the device is bound to"), &bound, &Some(new))?;
    }
    Ok(())
}

/// Concurrent binds of different devices from several handles are never lost.
async fn concurrent_binds_of_many_devices_are_never_lost(stage: &Stage) -> Checked {
    let handles = stage.handles(4).await?;
    let count = stage.settings.rounds.min(500);
    let workspace = stage.effects.new_workspace_id();
    let devices: Vec<DeviceId> =
        (0..count).map(|n| stage.device(&format!("device {n:03}"))).collect::<Checked<_>>()?;
    let results = race(devices.iter().cloned().enumerate().map(|(n, device)| {
        let store = handles[n % 4].bindings.clone();
        async move { store.bind(&device, workspace, Precondition::MustNotExist).await }
    }))
    .await?;
    let (_, failed) = split(results);
    holds_for("no bind fails", &failed, failed.is_empty())?;
    let mut listed = all_bindings(&handles[0], BindingQuery::new().with_limit(7)).await?;
    listed.sort();
    let expected: Vec<_> = devices.into_iter().map(|device| Binding::new(device, workspace)).collect();
    same("all bindings", &listed, &expected)
}

/// Pages show each binding exactly once, of all workspaces and of one, in an order that is the same for pages of any size,
/// after reopening, and while other devices are bound, moved and unbound.
async fn bindings_are_listed_once_in_a_stable_order(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let ids: Vec<WorkspaceId> = (0..3).map(|_| stage.effects.new_workspace_id()).collect();
    let mut expected = BTreeSet::new();
    for n in 0..30 {
        let device = stage.device(["laptop", "Äpfel", "phone", "~", "a b", "電話"][n % 6])?;
        let device: DeviceId = format!("{device}{n}").parse()?;
        storage.bindings.bind(&device, ids[n % 3], Precondition::MustNotExist).await?;
        expected.insert(Binding::new(device, ids[n % 3]));
    }
    let order = all_bindings(&storage, BindingQuery::new()).await?;
    same("all bindings", &order.iter().cloned().collect(), &expected)?;
    for limit in [1, 2, 7, 29, 30, 100] {
        let all = all_bindings(&storage, BindingQuery::new().with_limit(limit)).await?;
        same(format_args!("all, {limit} a page"), &all, &order)?;
        for id in &ids {
            let some =
                all_bindings(&storage, BindingQuery::new().with_workspace(*id).with_limit(limit)).await?;
            let own: Vec<_> = order.iter().filter(|b| b.workspace == *id).cloned().collect();
            same(format_args!("those of a workspace, {limit} a page"), &some, &own)?;
        }
        storage = stage.reopen(storage).await?;
    }
    // Others come and go between the pages.
    let (mut seen, mut cursor) = (Vec::new(), None);
    for turn in 0.. {
        let page = storage.bindings.list(BindingQuery::new().with_limit(4).with_cursor(cursor)).await?;
        seen.extend(page.items);
        ends(seen.len())?;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
        let other = stage.device(&format!("other {}", turn / 3))?;
        match turn % 3 {
            0 => drop(storage.bindings.bind(&other, ids[1], Precondition::None).await?),
            1 => drop(storage.bindings.bind(&other, ids[2], Precondition::None).await?),
            _ => drop(storage.bindings.unbind(&other).await?),
        }
    }
    seen.retain(|binding| expected.contains(binding));
    same("all that stay bound", &seen, &order)
}

/// Returns device ids that a careless store would take for a path, for structure, or for each other.
fn hostile_devices() -> Vec<String> {
    let mut devices: Vec<String> = [
        "../../x",
        "..",
        ".",
        "/",
        "/etc/passwd",
        "C:\\x",
        "con",
        "a/b",
        "a\\b",
        "a b",
        " a",
        "a ",
        "a.",
        "a",
        "A",
        "'",
        "\"",
        "`",
        "[bindings]",
        "a = 1",
        "#",
        "a=\"b\"",
        "\\u0041",
        "%2e%2e",
        "%",
        "*",
        "?",
        "~",
        "$HOME",
        "'; drop table bindings; --",
        "caf\u{e9}",
        "cafe\u{301}",
        "한국어",
        "\u{1112}\u{1161}\u{11ab}",
        "👩‍👩‍👧",
        "\u{feff}a",
        "\u{202e}a",
        "null",
        "0",
        "-1",
        "1e5",
        "true",
        "{}",
        "a,b",
        "a\u{a0}b",
        "a\u{2028}b",
    ]
    .map(str::to_owned)
    .to_vec();
    devices.push("x".repeat(512));
    devices.push(format!("{}y", "x".repeat(511)));
    devices.push("é".repeat(256));
    devices
}

/// Any text is a valid device id, is returned byte for byte, and is distinct from every other device id.
async fn hostile_device_ids_are_kept_apart(stage: &Stage) -> Checked {
    let mut storage = stage.open().await?;
    let mut expected = BTreeSet::new();
    for text in hostile_devices() {
        let device = stage.device(&text)?;
        let workspace = stage.effects.new_workspace_id();
        let bound = storage.bindings.bind(&device, workspace, Precondition::MustNotExist).await?;
        same(format_args!("binding the device {text:?}"), &bound, &workspace)?;
        expected.insert(Binding::new(device, workspace));
    }
    storage = stage.reopen(storage).await?;
    for binding in &expected {
        let bound = storage.bindings.resolve(&binding.device).await?;
        same(format_args!("the device {:?}", binding.device), &bound, &Some(binding.workspace))?;
    }
    let mut listed = all_bindings(&storage, BindingQuery::new().with_limit(3)).await?;
    listed.sort();
    same("all bindings", &listed, &expected.iter().cloned().collect())?;
    for binding in &expected {
        same("whether it was bound", &storage.bindings.unbind(&binding.device).await?, &true)?;
    }
    same("all bindings", &all_bindings(&storage, BindingQuery::new()).await?, &vec![])
}

/// An id that is empty, too long or contains control characters is invalid, so that it never reaches a store.
async fn bad_device_ids_never_reach_a_store(stage: &Stage) -> Checked {
    let long = "x".repeat(10_000);
    for text in ["", "a\0b", "a\nb", "\u{7f}", "\u{85}", &long] {
        let parsed = text.parse::<DeviceId>().map_err(Error::from);
        refused!(format_args!("the device id {text:?}"), parsed, ErrorKind::InvalidInput)?;
    }
    for text in ["", "../../x", "DEFAULT", "00000000000000000000000000000000", &long] {
        let parsed = text.parse::<WorkspaceId>().map_err(Error::from);
        refused!(format_args!("the workspace id {text:?}"), parsed, ErrorKind::InvalidInput)?;
    }
    let storage = stage.open().await?;
    let page = storage.workspaces.list(WorkspaceQuery::new()).await?;
    same("the workspaces of an untouched store", &page.items.len(), &0)
}

/// A cursor is valid for its own query and for no other.
async fn cursors_of_other_queries_are_refused(stage: &Stage) -> Checked {
    let storage = stage.open().await?;
    let workspace = stage.effects.new_workspace_id();
    for n in 0..3 {
        storage
            .bindings
            .bind(&stage.device(&format!("device {n}"))?, workspace, Precondition::MustNotExist)
            .await?;
        stage.new_session(&storage).await?;
    }
    let bindings = storage.bindings.list(BindingQuery::new().with_limit(1)).await?.next;
    let sessions = storage.sessions.list(agent_core::store::SessionQuery::new().with_limit(1)).await?.next;
    let workspaces = storage.workspaces.list(WorkspaceQuery::new().with_limit(1)).await?.next;
    for cursor in [&bindings, &sessions, &workspaces] {
        holds_for("a list of three leads on after one", cursor, cursor.is_some())?;
    }
    let other = BindingQuery::new().with_workspace(workspace).with_cursor(bindings.clone());
    refused!("another query", storage.bindings.list(other).await, ErrorKind::InvalidInput)?;
    let other = BindingQuery::new().with_cursor(sessions.clone());
    refused!("a cursor of sessions", storage.bindings.list(other).await, ErrorKind::InvalidInput)?;
    let other = agent_core::store::SessionQuery::new().with_label("a", "b").with_cursor(sessions);
    refused!("another filter", storage.sessions.list(other).await, ErrorKind::InvalidInput)?;
    let other = agent_core::store::SessionQuery::new().with_cursor(workspaces.clone());
    refused!("a cursor of workspaces", storage.sessions.list(other).await, ErrorKind::InvalidInput)?;
    let other = WorkspaceQuery::new().with_deleting().with_cursor(workspaces);
    refused!("another filter", storage.workspaces.list(other).await, ErrorKind::InvalidInput)?;
    for text in ["c2.", "c2.0000000000000000.", "c2.zz.", "c2.0123456789abcdef.not a key"] {
        let cursor = Some(text.parse()?);
        let sessions = agent_core::store::SessionQuery::new().with_cursor(cursor.clone());
        refused!("a made-up cursor", storage.sessions.list(sessions).await, ErrorKind::InvalidInput)?;
        let bindings = BindingQuery::new().with_cursor(cursor.clone());
        refused!("a made-up cursor", storage.bindings.list(bindings).await, ErrorKind::InvalidInput)?;
        let workspaces = WorkspaceQuery::new().with_cursor(cursor);
        refused!("a made-up cursor", storage.workspaces.list(workspaces).await, ErrorKind::InvalidInput)?;
    }
    Ok(())
}
