//! `chat verify`: everything is read once, as whoever needs it would read it.

use agent_core::configuration::ConfigLayers;
use agent_core::page::PAGE_MAX;
use agent_core::{
    BindingQuery, Damaged, ErrorKind, ReadEvents, Result, Session, SessionId, SessionQuery, SessionState,
    WorkspaceQuery,
};
use serde_json::json;

use super::output::damage;
use super::progress::{Bar, Progress};
use super::{Failure, Site};

pub(super) async fn run(site: &Site<'_>) -> Result<(), Failure> {
    let bar = Bar::new(Progress::Auto);
    let mut damaged = Vec::new();
    let counted = look(site, &bar, &mut damaged).await;
    bar.end();
    let [workspaces, sessions, events, bindings] = counted?;
    damaged.sort();
    damaged.dedup();
    let whole = json!({
        "workspaces": workspaces, "sessions": sessions, "events": events, "bindings": bindings,
        "damaged": damage(&damaged),
    });
    let text =
        format!("read {workspaces} workspaces, {sessions} sessions, {events} events, {bindings} bindings");
    site.out.result(&whole, &text);
    super::session::named(site, &damaged)
}

/// Looks through all of it; returns how many of each there are.
async fn look(site: &Site<'_>, bar: &Bar, damaged: &mut Vec<Damaged>) -> Result<[u64; 4]> {
    let [mut workspaces, mut sessions, mut events, mut bindings] = [0; 4];
    let mut next = Some(WorkspaceQuery::new().with_deleting().limit(PAGE_MAX));
    while let Some(query) = next {
        let page = site.storage.workspaces.list(query.clone()).await?;
        damaged.extend(page.damaged);
        for workspace in page.items {
            workspaces += 1;
            let config = site.storage.workspaces.load_config(workspace.id).await;
            let read = config.and_then(|text| ConfigLayers::new().workspace(&text.unwrap_or_default()));
            name(damaged, || format!("the configuration of workspace {}", workspace.id), read.map(drop))?;
        }
        next = page.next.map(|cursor| query.cursor(Some(cursor)));
    }
    let mut next = Some(SessionQuery::new().with_hidden().with_total().limit(PAGE_MAX));
    while let Some(query) = next {
        let page = site.storage.sessions.list(query.clone()).await?;
        damaged.extend(page.damaged);
        for id in page.items.iter().map(|item| item.id) {
            let read = session(site, id).await;
            sessions += 1;
            bar.tell("sessions", sessions, page.total);
            events += name(damaged, || format!("session {id}"), read)?.unwrap_or(0);
        }
        next = page.next.map(|cursor| query.cursor(Some(cursor)));
    }
    let mut next = Some(BindingQuery::new().limit(PAGE_MAX));
    while let Some(query) = next {
        let listed = site.storage.bindings.list(query.clone()).await;
        let Some(page) = name(damaged, || "the bindings".to_owned(), listed)? else { break };
        damaged.extend(page.damaged);
        bindings += page.items.len() as u64;
        next = page.next.map(|cursor| query.cursor(Some(cursor)));
    }
    Ok([workspaces, sessions, events, bindings])
}

/// Names what is damaged, and lets all other errors through.
fn name<T>(damaged: &mut Vec<Damaged>, object: impl Fn() -> String, read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) => match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::InvalidInput => {
                damaged.push(Damaged::new(object(), crate::open::told(&error)));
                Ok(None)
            }
            // It went meanwhile.
            ErrorKind::NotFound | ErrorKind::Deleted => Ok(None),
            _ => Err(error),
        },
    }
}

/// Reads a session's own log, and checks that its record is what that comes to. Returns how many events there are.
async fn session(site: &Site<'_>, id: SessionId) -> Result<u64> {
    let record = site.storage.sessions.load(id).await?;
    let corrupt = |text: String| Err(agent_core::Error::new(ErrorKind::Corrupt, text));
    let (mut folded, mut count) = (None::<Session>, 0);
    let base = record.lineage.base();
    let mut next = Some(ReadEvents::first(PAGE_MAX).max_bytes(1 << 20).after(base));
    while let Some(mut read) = next {
        read.before = Some(record.head.next());
        let page = site.storage.sessions.read(id, read).await?;
        for event in &page.events {
            count += 1;
            match &mut folded {
                None if event.seq == base.next() => folded = Some(Session::begin(id, event)?),
                None => return corrupt(format!("it begins with event {}", event.seq)),
                Some(session) => session.apply(event)?,
            }
        }
        if let Some(damage) = page.damaged.first() {
            return corrupt(damage.to_string());
        }
        next = page.next;
    }
    // Of one that was purged nobody can tell.
    let is_purged = record.status.state == SessionState::Deleted
        && folded.as_ref().is_none_or(|folded| folded.head < record.head);
    match folded {
        _ if is_purged => Ok(count),
        Some(mut folded) => {
            folded.extra = record.extra.clone();
            if folded == record {
                Ok(count)
            } else {
                corrupt("its record is not what its log comes to".to_owned())
            }
        }
        None => corrupt("its log is empty".to_owned()),
    }
}
