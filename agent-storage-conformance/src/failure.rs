//! How a clause fails: what was looked at, what was expected, what was seen.

use std::fmt::{self, Debug, Display};

use agent_core::{Error, ParseError, WriteOutcome};

/// Why a clause failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What was looked at.
    pub what: String,
    /// What the contract promises.
    pub expected: String,
    /// What the backend did.
    pub seen: String,
    /// The error of the backend, if that is why.
    error: Option<String>,
}

pub(crate) type Checked<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl Display, expected: impl Display, seen: impl Display) -> Self {
        let (expected, seen) = (cut(&expected.to_string()), cut(&seen.to_string()));
        Self { what: what.to_string(), expected, seen, error: None }
    }

    /// An operation gave another error than the contract says, or any at all.
    pub(crate) fn of(what: impl Display, expected: impl Display, error: &Error) -> Self {
        let error = brief(error);
        Self { error: Some(error.clone()), ..Self::new(what, expected, error) }
    }

    /// Why it failed, in words that are the same for all clauses that fail for that reason: without ids and numbers.
    pub(crate) fn cause(&self) -> String {
        let cause = match &self.error {
            Some(error) => error.clone(),
            None => format!("{}: expected {}, seen {}", self.what, self.expected, self.seen),
        };
        // What a person reads in one line.
        let line = cause.lines().next().unwrap_or_default();
        without_ids(&line[..line.floor_char_boundary(300)])
    }
}

/// An error in a line: its kind, its text, what it says of the write, and what caused it.
pub(crate) fn brief(error: &Error) -> String {
    let outcome = match error.write_outcome() {
        WriteOutcome::Unknown => " (it may have been applied)",
        WriteOutcome::NotApplied => "",
    };
    let mut text = format!("{:?}: {error}{outcome}", error.kind());
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text += &format!("; {inner}");
        source = inner.source();
    }
    text
}

/// The text with `…` for each word that has a digit in it: ids, numbers, times, paths.
fn without_ids(text: &str) -> String {
    let mut words = String::new();
    for word in text.split_inclusive(|c: char| !(c.is_alphanumeric() || "-_./".contains(c))) {
        let end = word.char_indices().last().map_or(0, |(at, last)| {
            if last.is_alphanumeric() || "-_./".contains(last) { word.len() } else { at }
        });
        let (word, gap) = word.split_at(end);
        words += if word.contains(|c: char| c.is_ascii_digit()) { "…" } else { word };
        words += gap;
    }
    words
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
        Self::of("an operation that must succeed", "success", &error)
    }
}

impl From<ParseError> for Failure {
    /// A name or an id that the clause makes is none.
    fn from(error: ParseError) -> Self {
        Error::from(error).into()
    }
}

/// Shortens what would fill the screen: both ends say most.
fn cut(text: &str) -> String {
    const MOST: usize = 300;
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
    if expected.len().max(seen.len()) <= WHOLE {
        return Err(Failure::new(what, expected, seen));
    }
    // Pages and records differ in one place, and that is what to look at.
    let at = expected.bytes().zip(seen.bytes()).take_while(|(a, b)| a == b).count();
    let what = format!("{what} (where the two differ: byte {at})");
    Err(Failure::new(what, around(&expected, at), around(&seen, at)))
}

/// The longest value that is shown whole.
const WHOLE: usize = 200;

/// The part of a long text around a place.
fn around(text: &str, at: usize) -> String {
    let start = text.floor_char_boundary(at.min(text.len()).saturating_sub(WHOLE / 3));
    let end = text.ceil_char_boundary((start + WHOLE).min(text.len()));
    let before = if start > 0 { "… " } else { "" };
    let after = if end < text.len() { " …" } else { "" };
    format!("{before}{}{after}", &text[start..end])
}

/// A value in a line: whole if it is short, else its start and how long it is.
pub(crate) fn shown(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    if text.len() <= 2 * WHOLE {
        return text;
    }
    format!("{} … ({} bytes)", &text[..text.floor_char_boundary(2 * WHOLE)], text.len())
}

/// An answer in a line.
pub(crate) fn answer<T: Debug>(result: &Result<T, Error>) -> String {
    match result {
        Ok(value) => format!("success: {}", shown(value)),
        Err(error) => brief(error),
    }
}

/// Checks a condition on what was seen; `expected` says it in words.
pub(crate) fn holds_for(expected: impl Display, seen: &impl Debug, holds: bool) -> Checked {
    if holds { Ok(()) } else { Err(Failure::new("a condition", expected, shown(seen))) }
}

/// Checks that a result is an error of a kind, and returns the error.
macro_rules! refused {
    ($what:expr, $result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Err(error) if matches!(error.kind(), $pattern $(if $guard)?) => Ok(error),
            Err(error) => Err($crate::failure::Failure::of(
                $what,
                $crate::failure::kind_of(stringify!($pattern), stringify!($($guard)?)),
                &error,
            )),
            Ok(value) => Err($crate::failure::Failure::new(
                $what,
                $crate::failure::kind_of(stringify!($pattern), stringify!($($guard)?)),
                format_args!("success: {}", $crate::failure::shown(&value)),
            )),
        }
    };
}
pub(crate) use refused;

/// The kind of error that a pattern means, in words: `ErrorKind::Conflict { .. }` is `the error Conflict`.
pub(crate) fn kind_of(pattern: &str, guard: &str) -> String {
    let name: String =
        pattern.trim_start_matches("ErrorKind::").chars().take_while(char::is_ascii_alphanumeric).collect();
    let fields = pattern.split_once('{').map_or("", |(_, fields)| fields.trim_end_matches(['}', ' ']).trim());
    let named = fields.split(',').filter_map(|field| field.split([':', ' ']).next());
    let named: Vec<_> = named.filter(|name| !name.is_empty() && *name != "..").collect();
    match (&*name, !guard.is_empty() || fields.contains(':')) {
        ("", _) => "an error".to_owned(),
        (name, true) if !named.is_empty() => {
            format!("the error {name}, with the {} as it is", named.join(" and the "))
        }
        (name, _) => format!("the error {name}"),
    }
}
