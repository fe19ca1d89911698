//! How a clause fails: what was looked at, what was expected, what was seen.

use std::fmt::{self, Debug, Display};

use agent_core::Error;

/// Why a clause failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was looked at.
    pub what: String,
    /// What the contract promises.
    pub expected: String,
    /// What the backend did.
    pub seen: String,
}

pub(crate) type Checked<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl Display, expected: impl Display, seen: impl Display) -> Self {
        Self { what: what.to_string(), expected: cut(&expected.to_string()), seen: cut(&seen.to_string()) }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "checked   {}", self.what)?;
        writeln!(f, "expected  {}", self.expected)?;
        write!(f, "seen      {}", self.seen)
    }
}

impl From<Error> for Failure {
    /// An operation failed that the clause depends on.
    fn from(error: Error) -> Self {
        Self::new("an operation that must succeed", "success", format_args!("{error:?}"))
    }
}

/// Shortens what would fill the screen: both ends say most.
fn cut(text: &str) -> String {
    const MOST: usize = 900;
    if text.len() <= 2 * MOST {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(MOST)];
    let tail = &text[text.ceil_char_boundary(text.len() - MOST)..];
    format!("{head} … {} bytes … {tail}", text.len() - head.len() - tail.len())
}

/// Checks that what was seen is what was expected.
pub(crate) fn same<T: PartialEq + Debug + ?Sized>(what: impl Display, seen: &T, expected: &T) -> Checked {
    if seen == expected {
        return Ok(());
    }
    let (expected, seen) = (format!("{expected:?}"), format!("{seen:?}"));
    // Long values differ somewhere in the middle: show the place.
    let at = expected.bytes().zip(seen.bytes()).take_while(|(a, b)| a == b).count();
    if at < 600 {
        return Err(Failure::new(what, expected, seen));
    }
    let around = |text: &str| text[text.floor_char_boundary(at.saturating_sub(200))..].to_owned();
    let what = format!("{what} (first difference at byte {at} of what follows cut)");
    Err(Failure::new(what, around(&expected), around(&seen)))
}

/// Checks a condition on what was seen; `expected` says it in words.
pub(crate) fn holds_for(expected: impl Display, seen: &impl Debug, holds: bool) -> Checked {
    if holds { Ok(()) } else { Err(Failure::new("a condition", expected, format_args!("{seen:?}"))) }
}

/// Checks that a result is an error of a kind, and returns the error.
macro_rules! refused {
    ($what:expr, $result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Err(error) if matches!(error.kind(), $pattern $(if $guard)?) => Ok(error),
            other => Err($crate::failure::Failure::new(
                $what,
                concat!("an error of kind ", stringify!($pattern $(if $guard)?)),
                format_args!("{other:?}"),
            )),
        }
    };
}
pub(crate) use refused;
