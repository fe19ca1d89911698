//! `chat verify` reads everything once and reports damage; `chat rebuild` rebuilds derived data.

use std::collections::BTreeSet;

use agent_admin::verify::{Finding, FindingKind, Verification, verify, verify_shared, verify_tenant};
use agent_core::Backend;
use serde_json::{Value, json};

use super::site::Site;
use crate::failure::{Failure, Result, for_users, session_of};
use crate::output::{Out, count_unread, damage, pending, print_pending, unread};
use crate::progress::{Bar, Progress};
use crate::screen::counted;

/// Verifies what all tenants of a store share; returns `false` if they share nothing.
pub(super) async fn shared(store: &dyn Backend, out: &Out) -> Result<bool> {
    let Some(found) = verify_shared(store).await? else { return Ok(false) };
    let whole = json!({"findings": findings(&found), "pending": pending(&found.pending), "foreign": damage(&found.foreign)});
    out.result(&whole, "checked the file that all tenants share");
    judge(out, &found).map(|()| true)
}

/// Verifies a tenant. What it shares with others is verified, too, unless `is_shared_checked` says that this was done.
pub(super) async fn run(site: &Site<'_>, is_shared_checked: bool) -> Result<()> {
    let bar = Bar::new(Progress::Auto);
    let report = |so_far: &Verification| {
        bar.report(&format!("{}, events", counted(so_far.sessions, "session")), so_far.events, None);
    };
    let read = match is_shared_checked {
        true => verify_tenant(&site.storage, report).await,
        false => verify(&site.storage, report).await,
    };
    drop(bar);
    let found = read?;
    let whole = json!({
        "workspaces": found.workspaces, "sessions": found.sessions, "events": found.events,
        "bindings": found.bindings, "findings": findings(&found), "pending": pending(&found.pending),
        "foreign": damage(&found.foreign),
    });
    let text = format!(
        "checked {}, {}, {}, {}",
        counted(found.workspaces, "workspace"),
        counted(found.sessions, "session"),
        counted(found.events, "event"),
        counted(found.bindings, "device binding")
    );
    site.out.result(&whole, &text);
    judge(&site.out, &found)
}

/// Returns findings as JSON.
fn findings(found: &Verification) -> Value {
    let value = |finding: &Finding| json!({"kind": finding.kind.name(), "object": finding.object, "detail": for_users(&finding.detail)});
    found.findings.iter().map(value).collect()
}

/// Prints the findings and what is pending; returns a failure if there are findings.
fn judge(out: &Out, found: &Verification) -> Result<()> {
    found.findings.iter().for_each(|finding| out.note(&for_users(&finding.to_string())));
    print_pending(out, &found.pending);
    found
        .foreign
        .iter()
        .for_each(|it| out.note(&format!("not of this store: {}", for_users(&it.to_string()))));
    match found.findings.len() {
        0 => Ok(()),
        count => Err(Failure::incomplete(format!(
            "{} found (listed above); nothing was changed. {}",
            counted(count as u64, "problem"),
            next_commands(&found.findings)
        ))),
    }
}

/// Returns whether a finding is about a blob, and the log that names it is readable.
fn is_blob(finding: &Finding) -> bool {
    finding.detail.starts_with("blob ") || finding.object.starts_with("blob ")
}

/// Returns the commands that repair the findings, one sentence for each kind.
fn next_commands(findings: &[Finding]) -> String {
    let damaged = findings.iter().filter(|finding| finding.kind == FindingKind::Damaged && !is_blob(finding));
    let damaged: BTreeSet<_> = damaged
        .map(|finding| {
            // A session whose files were moved away cannot be salvaged.
            let is_missing = finding.detail.starts_with(&format!("{} is missing", finding.object));
            session_of(&finding.object).filter(|_| !is_missing)
        })
        .collect();
    let mut next = BTreeSet::new();
    if damaged.contains(&None) {
        next.insert("For other damage, follow the advice in its line, or restore a backup.".to_owned());
    }
    let damaged: Vec<_> = damaged.into_iter().flatten().collect();
    let (start, id) = match damaged.as_slice() {
        [] => ("", String::new()),
        [id] => ("Run", id.to_string()),
        _ => ("For each damaged session, run", "ID".to_owned()),
    };
    if !damaged.is_empty() {
        next.insert(format!(
            "{start} `chat session restore {id} --from BACKUP` to bring it back whole from a backup, or `chat session salvage {id}` \
             to copy the readable part into a new session."
        ));
    }
    for finding in findings {
        let command = match finding.kind {
            FindingKind::Damaged if is_blob(finding) => {
                "For lost or damaged blobs, run the command in their lines with a copy of the file; without one, restore a \
                 backup, or run `chat session salvage ID` to copy the rest into a new session."
            }
            FindingKind::Unsupported => {
                "For objects of another format, use the version of the program that wrote them, and change nothing until then."
            }
            FindingKind::Differs => "Run `chat rebuild` to rebuild the differing records and lists.",
            FindingKind::Dangling if finding.object.starts_with("device ") => {
                "For devices of missing workspaces, run `chat device bind NAME WORKSPACE` or `chat device unbind NAME`."
            }
            FindingKind::Dangling
                if finding.detail.starts_with("its workspace ")
                    && finding.detail.ends_with("does not exist") =>
            {
                "For sessions whose workspace does not exist, run `chat session import FILE` again, copy the \
                 workspace with `chat copy FROM TO --workspace ID`, or run `chat session delete ID`."
            }
            FindingKind::Dangling => {
                "For sessions of deleted workspaces, run `chat workspace gc`; for other missing objects, run `chat copy` \
                 from a backup, or `chat session delete ID`."
            }
            FindingKind::Unfinished => {
                "For unfinished imports, run `chat session import FILE` again, or `chat session delete ID`."
            }
            _ => continue,
        };
        next.insert(command.to_owned());
    }
    next.into_iter().collect::<Vec<_>>().join(" ")
}

pub(super) async fn rebuild(site: &Site<'_>) -> Result<()> {
    let done = site.storage.sessions.maintenance().rebuild().await?;
    let text = format!(
        "rebuilt the records and list entries of {} from their logs",
        counted(done.sessions, "session")
    );
    site.out.result(&json!({"sessions": done.sessions, "damaged": damage(&done.damaged)}), &text);
    done.damaged.iter().for_each(|damage| site.out.note(&format!("not rebuilt, {}", unread(damage))));
    let salvage = match done.damaged.iter().any(|damage| !damage.is_unsupported) {
        true => "; run `chat session salvage ID` for damaged sessions",
        false => "; use the version that wrote them",
    };
    match done.damaged.as_slice() {
        [] => Ok(()),
        damaged => {
            Err(Failure::incomplete(format!("{} not rebuilt (listed above){salvage}", count_unread(damaged))))
        }
    }
}
