//! What commands print: tables for people, JSON for programs.

use std::io::{self, IsTerminal, Write};

use agent_core::TenantId;
use agent_core::json::{RawFields, RawJson};
use agent_core::store::Damaged;
use serde::Serialize;
use serde_json::{Value, json};

use crate::screen::{visible, visible_json};
use crate::stdout;

/// Where results go.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    json: bool,
    /// What JSON says of tenants besides.
    tenant: Option<(TenantId, usize)>,
    /// Whether a person is told of which tenant it is.
    titled: bool,
}

impl Out {
    pub(crate) const fn new(json: bool) -> Self {
        Self { json, tenant: None, titled: false }
    }

    /// The same for one of several tenants, of which `others` are not looked at.
    pub(crate) fn of(&self, tenant: &TenantId, others: Option<usize>, titled: bool) -> Self {
        Self { json: self.json, tenant: others.map(|others| (tenant.clone(), others)), titled }
    }

    /// JSON of what was found, in one line. What the library stores is passed on as it is: no number or text in it is read.
    fn whole(&self, value: &impl Serialize) {
        let mut value = raw(value);
        if let (Some((tenant, others)), Ok(mut fields)) = (&self.tenant, value.to::<RawFields>()) {
            fields.insert("tenant", raw(tenant));
            fields.insert("other_tenants", raw(others));
            value = raw(&fields);
        }
        put(&format!("{}\n", value.get()));
    }

    fn title(&self) {
        if let (Some((tenant, _)), true) = (&self.tenant, self.titled) {
            put(&format!("tenant {tenant}\n"));
        }
    }

    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// A result: one line of JSON, or the text.
    pub(crate) fn result(&self, value: &impl Serialize, text: &str) {
        if self.json {
            return self.whole(value);
        }
        self.title();
        line(text);
    }

    /// Rows under headings, or the whole as one JSON object.
    pub(crate) fn table(&self, value: &impl Serialize, headings: &[&str], rows: &[Vec<String>]) {
        if self.json {
            return self.whole(value);
        }
        self.title();
        let mut widths: Vec<_> = headings.iter().map(|heading| heading.len()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(visible(cell).chars().count());
            }
        }
        let show = |cells: Vec<String>| {
            let mut text = String::new();
            for (cell, width) in cells.iter().zip(&widths) {
                text.push_str(&format!("{cell:<width$}  "));
            }
            put(&format!("{}\n", text.trim_end()));
        };
        show(headings.iter().map(ToString::to_string).collect());
        for row in rows {
            show(row.iter().map(|cell| visible(cell).into_owned()).collect());
        }
    }

    /// Names and values, one a line; or the JSON object.
    pub(crate) fn fields(&self, value: &impl Serialize, fields: &[(&str, String)]) {
        if self.json {
            return self.whole(value);
        }
        for (name, field) in fields.iter().filter(|(_, field)| !field.is_empty()) {
            line(&format!("{name:<12} {field}"));
        }
    }

    /// Something that a person should know, beside the result.
    pub(crate) fn note(&self, text: &str) {
        if !self.json {
            // Where standard error is gone there is nobody to tell.
            let _ = writeln!(io::stderr(), "{}", visible(text));
        }
    }

    /// Why it failed.
    pub(crate) fn failure(&self, kind: &str, text: &str) {
        let said = if self.json {
            visible_json(&json!({"error": {"kind": kind, "message": text}}).to_string()).into_owned()
        } else {
            format!("chat: {}", visible(text))
        };
        let _ = writeln!(io::stderr(), "{said}");
    }
}

/// The JSON of what is said here or was stored, which has one.
pub(crate) fn raw(value: &impl Serialize) -> RawJson {
    RawJson::sure(value)
}

/// A page of a list as JSON. What its items hold is passed on as it is stored: not every reader takes it.
pub(crate) fn page_of(
    items: &impl Serialize,
    total: Option<u64>,
    next: Option<&str>,
    damaged: &[Damaged],
) -> RawFields {
    let fields = [
        ("items", raw(items)),
        ("total", raw(&total)),
        ("next", raw(&next)),
        ("damaged", raw(&damage(damaged))),
    ];
    fields.into_iter().collect()
}

/// A line for a person.
pub(crate) fn line(text: &str) {
    put(&format!("{}\n", visible(text)));
}

/// Text for whoever reads it, as it is.
pub(crate) fn put(text: &str) {
    put_bytes(text.as_bytes());
}

/// Bytes that need not be text.
pub(crate) fn put_bytes(bytes: &[u8]) {
    stdout::put(bytes);
}

/// What could not be read, as JSON.
pub(crate) fn damage(damaged: &[Damaged]) -> Value {
    damaged.iter().map(|damage| json!({"object": damage.object, "reason": damage.reason})).collect()
}

/// Whether a person watches what goes on.
pub(crate) fn is_watched() -> bool {
    io::stderr().is_terminal()
}
