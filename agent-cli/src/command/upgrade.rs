//! `chat upgrade`: the format numbers of a store, and the tables in PostgreSQL. A later version brings older forms up here.

use std::collections::BTreeSet;

use agent_core::store::{BindingQuery, Damaged, Page, SessionQuery, WorkspaceQuery, pages};
use agent_core::{Backend, ErrorKind};
use futures::TryStreamExt;
use futures::stream::BoxStream;
use serde_json::json;

use super::tenants;
use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::output::{Out, damage, line, unread};
use crate::screen::counted;
use crate::stores::closing;

/// What to do with a store, or an object, of another format.
const OTHER_FORMAT: &str = "Nothing was changed: this version reads the forms that it writes, and brings up no other. Read older \
                            data with the version that wrote it, and export it there; for newer data, use a newer chat.";

/// Objects that were looked at, by kind, and those that are not readable.
#[derive(Debug, Default)]
struct Counts {
    tenants: u64,
    workspaces: u64,
    sessions: u64,
    bindings: u64,
    unreadable: BTreeSet<Damaged>,
}

pub(super) async fn run(args: &Args) -> Result<()> {
    args.refuse_tenant("`chat upgrade` is about the whole store, and does not use --tenant")?;
    let address = args.address()?;
    let mut has_new_tables = false;
    let store = match address.existing().await {
        Err(error) if *error.kind() == ErrorKind::NotFound => match address.create_tables().await {
            Some(opened) => {
                let (store, has_created) = opened?;
                has_new_tables = has_created;
                store
            }
            None => return Err(error.into()),
        },
        Err(error) if *error.kind() == ErrorKind::Unsupported => {
            let refused = Failure::from(error);
            return Err(Failure { text: format!("{}. {OTHER_FORMAT}", refused.text), ..refused });
        }
        opened => opened?,
    };
    let counts = closing(&*store, count_all(&*store)).await?;
    let out = Out::new(args.json);
    if has_new_tables {
        out.note(&format!("created the tables of {}", address.shown()));
    }
    report(&out, &address.shown(), address.formats(), &counts)
}

/// Prints the numbers, and what is not readable. The numbers are those that this version writes: it reads no others.
fn report(out: &Out, store: &str, formats: &[(&str, u64)], counts: &Counts) -> Result<()> {
    let (unsupported, damaged): (Vec<_>, Vec<_>) =
        counts.unreadable.iter().cloned().partition(|object| object.is_unsupported);
    let numbers: serde_json::Map<_, _> =
        formats.iter().map(|(form, number)| ((*form).to_owned(), (*number).into())).collect();
    let whole = json!({
        "store": store, "formats": numbers, "tenants": counts.tenants, "workspaces": counts.workspaces,
        "sessions": counts.sessions, "bindings": counts.bindings, "unsupported": damage(&unsupported),
        "damaged": damage(&damaged),
    });
    if formats.is_empty() {
        out.result(&whole, "a store in memory has no stored form; nothing has to be done");
        return Ok(());
    }
    let rows: Vec<_> =
        formats.iter().map(|(form, number)| vec![(*form).to_owned(), number.to_string()]).collect();
    out.table(&whole, &["FORM", "NUMBER"], &rows);
    for object in unsupported.iter().chain(&damaged) {
        out.note(&unread(object));
    }
    if !unsupported.is_empty() {
        let count = counted(unsupported.len() as u64, "object");
        let text = format!("{count} of another format (listed above). {OTHER_FORMAT}");
        return Err(Failure::new(1, "unsupported", text));
    }
    if !damaged.is_empty() {
        return Err(Failure::incomplete(format!(
            "{} not readable (listed above), so the format is not known; run `chat verify`",
            counted(damaged.len() as u64, "object")
        )));
    }
    if !out.is_json() {
        line(&format!(
            "{}, {}, {} and {} have these formats, the present ones; nothing has to be done",
            counted(counts.tenants, "tenant"),
            counted(counts.workspaces, "workspace"),
            counted(counts.sessions, "session"),
            counted(counts.bindings, "device binding"),
        ));
    }
    Ok(())
}

/// Looks at each object of each tenant, as lists do: at its number, and at enough of it to read its record.
async fn count_all(store: &dyn Backend) -> Result<Counts> {
    let mut counts = Counts::default();
    let (tenants, damaged) = tenants::all(store).await?;
    counts.unreadable.extend(damaged);
    for tenant in tenants {
        counts.tenants += 1;
        let storage = store.tenant(&tenant);
        let of = |what: &str| format!("{what} of tenant {tenant}");
        let unreadable = &mut counts.unreadable;
        let query = WorkspaceQuery::new().with_deleting().with_limit(1000);
        let list = pages(query, |query| storage.workspaces.list(query));
        counts.workspaces += count(&of("workspaces"), list, unreadable).await?;
        let query = SessionQuery::new().with_hidden().with_limit(1000);
        let list = pages(query, |query| storage.sessions.list(query));
        counts.sessions += count(&of("sessions"), list, unreadable).await?;
        let query = BindingQuery::new().with_limit(1000);
        let list = pages(query, |query| storage.bindings.list(query));
        counts.bindings += count(&of("device bindings"), list, unreadable).await?;
    }
    Ok(counts)
}

/// Returns how many objects a list has, and collects those that are not readable.
async fn count<T>(
    object: &str,
    mut pages: BoxStream<'_, agent_core::Result<Page<T>>>,
    unreadable: &mut BTreeSet<Damaged>,
) -> Result<u64> {
    let mut count = 0;
    loop {
        match pages.try_next().await {
            Ok(Some(page)) => {
                count += page.items.len() as u64;
                unreadable.extend(page.damaged);
            }
            Ok(None) => return Ok(count),
            // A file that holds a whole list.
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Corrupt) => {
                unreadable.insert(Damaged::of(object, &error));
                return Ok(count);
            }
            Err(error) => return Err(error.into()),
        }
    }
}
