//! Output of commands: tables for people, JSON for programs.

use std::fmt;
use std::io::{self, Write};

use agent_core::TenantId;
use agent_core::json::{RawFields, RawJson};
use agent_core::store::{Damaged, Pending};
use agent_runtime::retention::Retained;
use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::{Result, for_users};
use crate::layout::{self, terminal_width};
use crate::screen::counted;
use crate::stdout;
use crate::visible::{visible, visible_json};

/// Format of the output.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    json: bool,
    /// Tenant, and the number of other tenants, which JSON output contains.
    tenant: Option<(TenantId, usize)>,
    /// Whether the output begins with the name of the tenant.
    titled: bool,
}

impl Out {
    pub(crate) const fn new(json: bool) -> Self {
        Self { json, tenant: None, titled: false }
    }

    /// Returns the output for one of several tenants; `others` is the number of those that are not processed.
    pub(crate) fn of(&self, tenant: &TenantId, others: Option<usize>, titled: bool) -> Self {
        Self { json: self.json, tenant: others.map(|others| (tenant.clone(), others)), titled }
    }

    /// Prints a result as one line of JSON. Stored JSON is passed through unchanged.
    fn whole(&self, value: &impl Serialize) {
        let mut value = RawJson::sure(value);
        if let (Some((tenant, others)), Ok(mut fields)) = (&self.tenant, value.to::<RawFields>()) {
            fields.insert("tenant", RawJson::sure(tenant));
            fields.insert("other_tenants", RawJson::sure(others));
            value = RawJson::sure(&fields);
        }
        stdout::put(&format!("{}\n", value.get()));
    }

    fn title(&self) {
        if let (Some((tenant, _)), true) = (&self.tenant, self.titled) {
            stdout::put(&format!("tenant {tenant}\n"));
        }
    }

    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a result: one line of JSON, or the text.
    pub(crate) fn result(&self, value: &impl Serialize, text: &str) {
        if self.json {
            return self.whole(value);
        }
        self.title();
        line(text);
    }

    /// Prints rows under headings, or `value` as one JSON object.
    pub(crate) fn table(&self, value: &impl Serialize, headings: &[&str], rows: &[Vec<String>]) {
        if self.json {
            return self.whole(value);
        }
        self.print_lines(&layout::lines(headings, rows, None));
    }

    /// Prints rows like [`table`](Self::table), cut to the width of the terminal, if the output is shown on one.
    pub(crate) fn cut_table(&self, value: &impl Serialize, headings: &[&str], rows: &[Vec<String>]) {
        if self.json {
            return self.whole(value);
        }
        self.print_lines(&layout::lines(headings, rows, terminal_width()));
    }

    fn print_lines(&self, lines: &[String]) {
        self.title();
        lines.iter().for_each(|line| stdout::put(&format!("{line}\n")));
    }

    /// Prints names and values, one on a line, or `value` as one JSON object. Empty values are left out.
    pub(crate) fn fields(&self, value: &impl Serialize, fields: &[(&str, String)]) {
        if self.json {
            return self.whole(value);
        }
        for (name, field) in fields.iter().filter(|(_, field)| !field.is_empty()) {
            line(&format!("{name:<12} {field}"));
        }
    }

    /// Prints a notice to standard error, with the tenant if there may be several; nothing for JSON output.
    pub(crate) fn note(&self, text: &str) {
        let tenant = match &self.tenant {
            Some((tenant, _)) if self.titled => format!("tenant {tenant}: "),
            _ => String::new(),
        };
        if !self.json {
            // A failure to write to standard error is ignored.
            let _ = writeln!(io::stderr(), "{tenant}{}", visible(text));
        }
    }

    /// Prints an error to standard error.
    pub(crate) fn failure(&self, kind: &str, text: &str) {
        let message = if self.json {
            visible_json(&json!({"error": {"kind": kind, "message": text}}).to_string()).into_owned()
        } else {
            format!("chat: {}", visible(text))
        };
        let _ = writeln!(io::stderr(), "{message}");
    }
}

/// Prints a line of text.
pub(crate) fn line(text: &str) {
    stdout::put(&format!("{}\n", visible(text)));
}

/// Prints content unchanged.
pub(crate) async fn put_content(mut content: BoxStream<'_, agent_core::Result<Bytes>>) -> Result<()> {
    while let Some(piece) = content.try_next().await? {
        stdout::put(&piece);
    }
    Ok(())
}

/// Returns objects that could not be read as JSON.
pub(crate) fn damage(damaged: &[Damaged]) -> Value {
    let value = |it: &Damaged| json!({"kind": kind_of(it), "object": it.object, "reason": it.reason});
    damaged.iter().map(value).collect()
}

/// Returns work that a store has put off as JSON.
pub(crate) fn pending(pending: &[Pending]) -> Value {
    pending.iter().map(|it| json!({"object": it.object, "work": it.work, "manual": it.is_manual})).collect()
}

/// Prints the work that a store has put off.
pub(crate) fn print_pending(out: &Out, pending: &[Pending]) {
    for it in pending {
        let remedy = if it.is_manual { "" } else { "; `chat maintain` does this" };
        out.note(&format!("pending: {it}{remedy}"));
    }
}

/// Prints that copies of removed data may be left, if they may be.
pub(crate) fn print_copies(out: &Out, may_be_left: bool) {
    if may_be_left {
        out.note(
            "(copies of removed data may be in unused parts of the database file until `chat maintain` rewrites it)",
        );
    }
}

fn kind_of(damage: &Damaged) -> &'static str {
    match damage {
        Damaged { is_foreign: true, .. } => "foreign",
        Damaged { is_unsupported: true, .. } => "unsupported",
        _ => "damaged",
    }
}

/// Returns an object that could not be read, for people: what another version wrote is not damaged.
pub(crate) fn unread(damage: &Damaged) -> String {
    let why = if damage.is_unsupported { "another format" } else { "damaged" };
    format!("{why}: {}", for_users(&damage.to_string()))
}

/// Returns how many of these objects are damaged, and how many are of another format.
pub(crate) fn count_unread(damaged: &[Damaged]) -> String {
    let unsupported = damaged.iter().filter(|it| it.is_unsupported).count() as u64;
    let rest = damaged.len() as u64 - unsupported;
    let damaged = counted(rest, "damaged object");
    match (rest, unsupported) {
        (_, 0) => damaged,
        (0, _) => format!("{} of another format", counted(unsupported, "object")),
        _ => format!("{damaged} and {unsupported} of another format"),
    }
}

/// Returns an object that is kept, with the reason, as JSON.
pub(crate) fn retained_value<T: fmt::Display>(retained: &Retained<T>) -> Value {
    json!({"id": retained.id.to_string(), "reason": retained.reason.to_string()})
}

/// Returns an object that is kept, with the reason, as a row of a table.
pub(crate) fn retained_row<T: fmt::Display>(retained: &Retained<T>) -> Vec<String> {
    vec![retained.id.to_string(), "kept".to_owned(), retained.reason.to_string()]
}

/// Returns an action in the past tense; in a dry run as one that would be taken.
pub(crate) fn tense(action: &str, dry_run: bool) -> String {
    if dry_run { format!("would be {action}") } else { action.to_owned() }
}
