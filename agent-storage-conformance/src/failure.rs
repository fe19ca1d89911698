//! Failure of a clause: what was checked, what was expected, what was observed.

use std::fmt::{self, Debug, Display};

use agent_core::{Error, ParseError, WriteOutcome};

/// Reason for which a clause failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Object or operation that was checked.
    pub what: String,
    /// Behaviour that the contract promises.
    pub expected: String,
    /// Behaviour of the backend.
    pub seen: String,
    /// Error of the backend, if it caused the failure.
    error: Option<String>,
}

pub(crate) type Checked<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(what: impl Display, expected: impl Display, seen: impl Display) -> Self {
        let (expected, seen) = (cut(&expected.to_string()), cut(&seen.to_string()));
        Self { what: what.to_string(), expected, seen, error: None }
    }

    /// Failure of an operation that returned another error than the contract states, or an unexpected error.
    pub(crate) fn of(what: impl Display, expected: impl Display, error: &Error) -> Self {
        let error = brief(error);
        Self { error: Some(error.clone()), ..Self::new(what, expected, error) }
    }

    /// Returns the cause in words that are the same for all clauses that fail for the same reason: without ids and
    /// numbers.
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

/// Returns an error in one line: its kind, its text, the outcome of the write, and its causes.
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

/// Returns the text with `…` in place of each word that has a digit in it: ids, numbers, times, paths.
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
    /// Converts the error of an operation that the clause depends on.
    fn from(error: Error) -> Self {
        Self::of("an operation that must succeed", "success", &error)
    }
}

impl From<ParseError> for Failure {
    /// Converts the error of a name or an id that the clause made.
    fn from(error: ParseError) -> Self {
        Error::from(error).into()
    }
}

/// Shortens a long text to its two ends.
fn cut(text: &str) -> String {
    const MOST: usize = 300;
    if text.len() <= 2 * MOST {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(MOST)];
    let tail = &text[text.ceil_char_boundary(text.len() - MOST)..];
    format!("{head} … {} bytes … {tail}", text.len() - head.len() - tail.len())
}

/// Checks that the observed value is the expected one.
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

/// Length of the longest value that is shown whole.
const WHOLE: usize = 200;

/// Returns the part of a long text around a position.
fn around(text: &str, at: usize) -> String {
    let start = text.floor_char_boundary(at.min(text.len()).saturating_sub(WHOLE / 3));
    let end = text.ceil_char_boundary((start + WHOLE).min(text.len()));
    let before = if start > 0 { "… " } else { "" };
    let after = if end < text.len() { " …" } else { "" };
    format!("{before}{}{after}", &text[start..end])
}

/// Returns a value in one line: whole if it is short, else its start and its length.
pub(crate) fn shown(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    if text.len() <= 2 * WHOLE {
        return text;
    }
    format!("{} … ({} bytes)", &text[..text.floor_char_boundary(2 * WHOLE)], text.len())
}

/// Returns an answer in one line.
pub(crate) fn answer<T: Debug>(result: &Result<T, Error>) -> String {
    match result {
        Ok(value) => format!("success: {}", shown(value)),
        Err(error) => brief(error),
    }
}

/// Checks a condition on an observed value; `expected` is its description.
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

/// Returns the kind of error that a pattern matches, in words: `ErrorKind::Conflict { .. }` becomes `the error
/// Conflict`.
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
