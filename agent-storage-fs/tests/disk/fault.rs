//! Faults of the model disk: which calls fail, and how.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

pub(crate) const EIO: i32 = 5;
pub(crate) const EMFILE: i32 = 24;
pub(crate) const ENOSPC: i32 = 28;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does nothing and reports this. A write takes half of its bytes first, and a file's sync loses what it was to sync.
    Fails(i32),
    /// It does its work, and reports this all the same.
    DoneButFails(i32),
    /// A read or a write takes half of its bytes; no error.
    Short,
    /// A read or a write is interrupted before it did anything.
    Interrupted,
}

/// One call through the seam, as a rule for faults sees it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
}

/// A call that failed.
#[derive(Clone, Debug)]
pub(crate) struct Fired {
    pub(crate) number: usize,
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) fault: Fault,
}

impl fmt::Display for Fired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}, {} of {}: {:?}", self.number, self.name, self.path.display(), self.fault)
    }
}

/// How often each kind of fault struck.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<String, usize>);

impl Tally {
    pub(crate) fn add(&mut self, fired: &[Fired]) {
        for Fired { name, fault, .. } in fired {
            let kind = match fault {
                Fault::Fails(_) if *name == "sync" => {
                    "a file's sync fails, and loses what it was to sync".to_owned()
                }
                Fault::Fails(EIO) => format!("I/O error, {name}"),
                Fault::Fails(ENOSPC) => format!("no space, {name}"),
                Fault::Fails(EMFILE) => format!("no file handle, {name}"),
                Fault::Fails(errno) => format!("error {errno}, {name}"),
                Fault::DoneButFails(_) => format!("done, and an error all the same, {name}"),
                Fault::Short => format!("half is done, {name}"),
                Fault::Interrupted => format!("interrupted, {name}"),
            };
            *self.0.entry(kind).or_default() += 1;
        }
    }

    /// Says it, for `.ci/full`.
    pub(crate) fn print_counts(&self, whose: &str) {
        for (kind, count) in &self.0 {
            println!("proof: {count} faults on {whose}: {kind}");
        }
    }
}
