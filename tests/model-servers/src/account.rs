//! One account at a provider: ids and signatures.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// How a signature stands to a request.
pub(crate) enum Signed {
    Current,
    Stale,
    Forged,
}

/// Account that signs what it answers.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) name: String,
    /// Whether signatures are held against what stands before them.
    pub(crate) verifies: bool,
    pub(crate) answers: u64,
    signatures: u64,
    /// Responses: ids of items by those of the reasoning that led to them.
    pub(crate) led_to: BTreeMap<String, String>,
}

impl Account {
    pub(crate) fn new() -> Self {
        let name = "one account".to_owned();
        Self { name, verifies: true, answers: 0, signatures: 0, led_to: BTreeMap::new() }
    }

    /// Returns an id that no other answer of this account has.
    pub(crate) fn id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}_{}n{index}", self.answers)
    }

    fn mac(&self, what: &[&str]) -> String {
        let mut hasher = Sha256::new();
        for part in [&*self.name].iter().chain(what) {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.finalize().iter().take(12).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Binds a signature to what stands before it.
    fn bind(&self, number: &str, before: &Value) -> String {
        let mut text = String::new();
        canonical(before, &mut text);
        self.mac(&["before", number, &text])
    }

    /// Signs what stands before an item. The signature is base64, since clients decode it and encode it again.
    pub(crate) fn sign(&mut self, before: &Value) -> String {
        self.signatures += 1;
        let number = format!("{:08x}", self.signatures);
        let (own, bound) = (self.mac(&["number", &number]), self.bind(&number, before));
        format!("EpEA{number}{own}{bound}")
    }

    /// Looks at a signature that stands behind this.
    pub(crate) fn verify(&self, signature: &str, before: &Value) -> Signed {
        if !self.verifies {
            return Signed::Current;
        }
        let parts = signature.strip_prefix("EpEA");
        let Some((number, macs)) = parts.and_then(|parts| parts.split_at_checked(8)) else {
            return Signed::Forged;
        };
        let Some(bound) = macs.strip_prefix(&self.mac(&["number", number])) else { return Signed::Forged };
        if bound == self.bind(number, before) { Signed::Current } else { Signed::Stale }
    }
}

/// Writes JSON in the form that is signed: members in the order of their names, without those that are `null`, which clients
/// add and leave out, and without the marks for caches, which move from request to request.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let is_signed =
                |(name, member): &(&String, &Value)| !member.is_null() && *name != "cache_control";
            let members: BTreeMap<_, _> = members.iter().filter(is_signed).collect();
            out.push('{');
            for (name, member) in members {
                out.push_str(&format!("{name:?}:"));
                canonical(member, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for item in list {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}
