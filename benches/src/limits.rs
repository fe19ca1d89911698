//! Counts of what operations need, and the limits of these counts in a file: a name and a count, one a line.
//!
//! Unlike a time, a count is about the same on a busy machine.

use std::collections::BTreeMap;
use std::fmt::Write;

use bench_worker::Outcome;

/// A count with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    /// Name in the file of limits, without spaces.
    pub name: String,
    /// Description of what is counted, in one line.
    pub about: String,
    /// The count; at least 1 of anything that was counted, unless its limit is 0.
    pub count: u64,
}

/// File of limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Path of the file.
    pub file: &'static str,
    /// Description of what is counted, the first words of the file.
    pub about: &'static str,
    /// Most that a count may be above its limit, in percent; more than that only by one.
    pub tolerance: u64,
    /// Command that compares the counts of now; with `--write` it makes them the limits.
    pub command: &'static str,
}

impl Limits {
    /// Makes these counts the limits.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, counts: &[Count]) -> Outcome {
        Ok(std::fs::write(self.file, self.written(counts))?)
    }

    /// Returns a table of counts and limits, and whether each count is within its limit and each limit has a count.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is malformed.
    pub fn compare(&self, counts: &[Count]) -> Outcome<(String, bool)> {
        let text = std::fs::read_to_string(self.file).map_err(|error| format!("{}: {error}", self.file))?;
        Ok(self.compared(counts, read(&text)?))
    }

    fn written(&self, counts: &[Count]) -> String {
        let Self { about, tolerance, command, .. } = self;
        let mut text = format!(
            "# {about}. `{command}` fails if a count is more than {tolerance} % above its limit;\n\
             # `{command} --write` makes the counts of now the limits.\n"
        );
        for Count { name, count, .. } in counts {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} {count}");
        }
        text
    }

    fn compared(&self, counts: &[Count], mut limits: BTreeMap<&str, u64>) -> (String, bool) {
        let Self { tolerance, command, file, .. } = self;
        let wide = counts.iter().map(|count| count.name.len()).max().unwrap_or(0);
        let (mut table, mut holds) = (format!("{:<wide$}{:>14}{:>14}{:>9}", "", "count", "limit", ""), true);
        for Count { name, about, count } in counts {
            let limit = limits.remove(name.as_str());
            let more = *count as f64 - limit.unwrap_or(0) as f64;
            let percent = more / limit.unwrap_or(0).max(1) as f64 * 100.0;
            let verdict = match limit {
                None => "  HAS NO LIMIT".to_owned(),
                Some(limit) if *count == 0 && limit > 0 => "  WAS NOT COUNTED".to_owned(),
                Some(limit) if *count > limit + (limit * tolerance / 100).max(1) => {
                    format!("  MORE THAN {tolerance} % ABOVE")
                }
                Some(_) => String::new(),
            };
            holds &= verdict.is_empty();
            let limit = limit.unwrap_or(0);
            // Writing to a string cannot fail.
            let _ = write!(table, "\n{name:<wide$}{count:>14}{limit:>14}{percent:>+8.1}%  {about}{verdict}");
        }
        for name in limits.keys() {
            holds = false;
            // Writing to a string cannot fail.
            let _ = write!(table, "\n{name} WAS NOT COUNTED");
        }
        if !holds {
            // Writing to a string cannot fail.
            let _ = write!(
                table,
                "\nFind what grew. If it must be so, `{command} --write` renews the limits in {file}; say why in the commit."
            );
        }
        (table, holds)
    }
}

fn read(text: &str) -> Outcome<BTreeMap<&str, u64>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, limit) = line.split_once(' ').ok_or_else(|| format!("no limit: {line:?}"))?;
            Ok((name, limit.parse().map_err(|error| format!("no limit: {line:?}: {error}"))?))
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { file: "limits.txt", about: "Calls", tolerance: 5, command: "count" };

    fn counts(each: u64) -> Vec<Count> {
        let count = |name: &str| Count { name: name.to_owned(), about: format!("a {name}"), count: each };
        ["plan", "parse"].map(count).to_vec()
    }

    fn compared(counts: &[Count], limits: &[Count]) -> (String, bool) {
        LIMITS.compared(counts, read(&LIMITS.written(limits)).unwrap())
    }

    #[test]
    fn count_above_its_limit_fails() {
        let limits = counts(1_000);
        assert!(compared(&counts(1_050), &limits).1);
        assert!(compared(&counts(10), &limits).1);
        let mut more = counts(1_000);
        more[1].count = 1_051;
        let (table, holds) = compared(&more, &limits);
        assert!(!holds && table.contains("`count --write`") && table.contains("limits.txt"), "{table}");
        let named = |line: &&str| line.starts_with("parse") && line.contains("ABOVE");
        assert_eq!((table.lines().filter(named).count(), table.matches("ABOVE").count()), (1, 1), "{table}");
    }

    /// Five percent of a few is none.
    #[test]
    fn one_more_of_a_few_is_within_the_limit() {
        assert!(compared(&counts(5), &counts(4)).1 && compared(&counts(0), &counts(0)).1);
        assert!(!compared(&counts(6), &counts(4)).1);
    }

    #[test]
    fn count_or_limit_that_is_missing_fails() {
        for (counted, limits) in
            [(&[][..], &counts(1_000)[..]), (&counts(1_000), &[]), (&counts(0), &counts(9))]
        {
            assert!(!compared(counted, limits).1, "{counted:?}");
        }
        assert!(read("plan").is_err() && read("plan x").is_err());
    }
}
