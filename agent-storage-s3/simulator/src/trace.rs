//! Trace of requests and their outcomes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::faults::Fault;
use crate::op::Op;

/// One request, in the order in which they left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Time at which the request left, since the start of the simulator.
    pub at: Duration,
    /// The name of the connector that sent it.
    pub client: Arc<str>,
    /// Operation of the request.
    pub op: Op,
    /// Key of the object, or listed prefix.
    pub target: String,
    /// The condition of an [`Op::Update`]: the ETag as it came.
    pub etag: Option<String>,
    /// Bytes sent, and their MD5 where there are any.
    pub sent: Option<(usize, String)>,
    /// Fault of the request, if any.
    pub fault: Option<Fault>,
    /// Times at which the store carried the request out, with its answers, of which the client may have seen none. Two
    /// entries if it was carried out twice; none if it was lost or is still on its way.
    pub done: Vec<(Duration, u16)>,
    /// Number of bytes of the store's answers.
    pub answered: usize,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3} {} {:?} {}", self.at.as_secs_f64(), self.client, self.op, self.target)?;
        if let Some(etag) = &self.etag {
            write!(f, " if {etag}")?;
        }
        if let Some((bytes, md5)) = &self.sent {
            write!(f, " {bytes} B {md5}")?;
        }
        if let Some(fault) = self.fault {
            write!(f, " {fault}")?;
        }
        for (at, status) in &self.done {
            write!(f, " -> {status} at {:.3}", at.as_secs_f64())?;
        }
        Ok(())
    }
}

/// Number of requests of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// GET, of the whole or a part.
    pub get: usize,
    /// HEAD
    pub head: usize,
    /// PUT, with a condition or without.
    pub put: usize,
    /// DELETE, of one or of several.
    pub delete: usize,
    /// Pages of LIST.
    pub list: usize,
}

impl Counts {
    pub(crate) fn of<'a>(entries: impl Iterator<Item = &'a Entry>) -> Self {
        let mut counts = Self::default();
        for entry in entries {
            match entry.op {
                Op::Get => counts.get += 1,
                Op::Head => counts.head += 1,
                Op::Put | Op::Create | Op::Update => counts.put += 1,
                Op::Delete => counts.delete += 1,
                Op::List => counts.list += 1,
                Op::Unknown => {}
            }
        }
        counts
    }

    /// All of them.
    pub const fn total(&self) -> usize {
        self.get + self.head + self.put + self.delete + self.list
    }
}

impl fmt::Display for Counts {
    /// As in `1 LIST + 1 GET + 2 PUT`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.list, "LIST"),
            (self.head, "HEAD"),
            (self.get, "GET"),
            (self.put, "PUT"),
            (self.delete, "DELETE"),
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        f.write_str(if parts.is_empty() { "none" } else { "" })?;
        f.write_str(&parts.join(" + "))
    }
}
