//! `chat verify`: everything is read once, and what is wrong is named. `chat rebuild`: what is derived is made anew.

use agent_admin::verify::verify;
use serde_json::json;

use super::output::damage;
use super::progress::{Bar, Progress};
use super::site::Site;
use crate::failure::Failure;

pub(super) async fn run(site: &Site<'_>) -> Result<(), Failure> {
    let bar = Bar::new(Progress::Auto);
    let read = verify(&site.storage, |so_far| bar.tell("sessions", so_far.sessions, None)).await;
    bar.end();
    let found = read?;
    let findings: Vec<_> = found
        .findings
        .iter()
        .map(|finding| json!({"kind": finding.kind.name(), "object": finding.object, "detail": finding.detail}))
        .collect();
    let whole = json!({
        "workspaces": found.workspaces, "sessions": found.sessions, "events": found.events,
        "bindings": found.bindings, "findings": findings,
    });
    let text = format!(
        "read {} workspaces, {} sessions, {} events, {} bindings",
        found.workspaces, found.sessions, found.events, found.bindings
    );
    site.out.result(&whole, &text);
    found.findings.iter().for_each(|finding| site.out.note(&finding.to_string()));
    match found.findings.len() {
        0 => Ok(()),
        1 => Err(Failure::incomplete("wrong in one place, which is named; nothing was changed".to_owned())),
        count => {
            Err(Failure::incomplete(format!("wrong in {count} places, which are named; nothing was changed")))
        }
    }
}

pub(super) async fn rebuild(site: &Site<'_>) -> Result<(), Failure> {
    let done = site.storage.sessions.rebuild().await?;
    let text = format!("made the records and lists of {} sessions anew from their logs", done.sessions);
    site.out.result(&json!({"sessions": done.sessions, "damaged": damage(&done.damaged)}), &text);
    done.damaged.iter().for_each(|damage| site.out.note(&format!("left as it is: {damage}")));
    match done.damaged.as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::incomplete(format!("{} is damaged, and was left as it is", one.object))),
        more => Err(Failure::incomplete(format!(
            "{} sessions are damaged, and were left as they are; the report names them",
            more.len()
        ))),
    }
}
