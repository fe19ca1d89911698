//! Tables of the docs, made from measurements.

use bench_worker::Task;

use super::measurement::{Measurement, Measurements};
use crate::outcome::Outcome;

/// Comments between which a page has a table.
const BEGIN: &str = "<!-- beside: made by the harness -->";
const END: &str = "<!-- beside: end -->";

/// A page with a table of measurements.
pub(crate) struct Page {
    /// The file, from the folder of the docs.
    pub(crate) file: &'static str,
    /// Whether it has the rows and the stores that a reader looks for first, and no more.
    is_short: bool,
}

pub(crate) const PAGES: [Page; 2] =
    [Page { file: "performance.md", is_short: false }, Page { file: "../README.md", is_short: true }];

/// Stores and libraries that a short table leaves out.
const DETAILS: [&str; 2] = ["adk-session", "tea-session"];

/// Load above which the page says that the machine was busy.
const BUSY: f64 = 1.0;

/// A row of the table: its name, whether a short table has it, and the cell of a store.
type Row = (&'static str, bool, fn(&Measurements, &str) -> Option<String>);

const ROWS: [Row; 10] = [
    ("syncs of a turn", true, |all, store| {
        let turn = all.find(Task::Turn(100), store)?;
        Some(turn.syncs_exact.map_or("not counted".to_owned(), |syncs| format!("{syncs}")))
    }),
    ("a turn", true, |all, store| median(all, Task::Turn(100), store)),
    ("a turn at 10,000 against at 100 messages", false, |all, store| {
        let [long, short] = [10_000, 100].map(|size| all.find(Task::Turn(size), store));
        Some(format!("{:.2}", long?.median() / short?.median()))
    }),
    ("32 sessions at once", true, |all, store| Some(rate(all.find(Task::Writers(32), store)?))),
    ("a turn of its agent, in 100 conversations of 500 messages", true, |all, store| {
        Some(slowest(all.find(Task::Agents(100), store)?))
    }),
    ("the same in 1,000 conversations", false, |all, store| {
        Some(slowest(all.find(Task::Agents(1_000), store)?))
    }),
    ("load 10,000 messages", true, |all, store| median(all, Task::Load(10_000), store)),
    ("last 50 of 100,000 messages", true, |all, store| median(all, Task::Last(100_000), store)),
    ("list 50 of 10,000 sessions", true, |all, store| median(all, Task::List(10_000), store)),
    ("fork of 10,000 messages", true, |all, store| median(all, Task::Fork(10_000), store)),
];

fn median(all: &Measurements, task: Task, store: &str) -> Option<String> {
    Some(time(all.find(task, store)?.median()))
}

/// Writes microseconds with a unit and three digits at most.
fn time(micros: f64) -> String {
    match micros {
        ..1_000.0 => format!("{micros:.0} us"),
        ..10_000.0 => format!("{:.1} ms", micros / 1e3),
        ..1_000_000.0 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.1} s", micros / 1e6),
    }
}

fn rate(at_once: &Measurement) -> String {
    format!("{}/s{}", thousands(1e6 / at_once.median()), at_worst(at_once))
}

fn slowest(at_once: &Measurement) -> String {
    time(at_once.median()) + &at_worst(at_once)
}

/// Returns what a median leaves out of operations that run at once.
fn at_worst(at_once: &Measurement) -> String {
    let refused =
        if at_once.refused == 0 { String::new() } else { format!(", {} calls refused", at_once.refused) };
    format!(", p99 {}{refused}", time(at_once.p99_ms.unwrap_or(f64::NAN) * 1e3))
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (head, tail) = digits.split_at(digits.len().saturating_sub(3));
    if head.is_empty() { tail.to_owned() } else { format!("{head},{tail}") }
}

/// Returns a sentence about the machine, and the table of the stores and libraries.
fn markdown(all: &Measurements, is_short: bool) -> String {
    let text = |part: &str, name: &str| all.run[part][name].as_str().unwrap_or("unknown").to_owned();
    let file_system = text("machine", "file_system");
    let mut page = format!(
        "Measured on {} with {} cores, {}, {} on {}, {}.",
        text("machine", "cpu"),
        all.run["machine"]["cores"],
        text("machine", "kernel"),
        file_system.split(' ').next().unwrap_or_default(),
        text("machine", "disk"),
        text("compiler", "rustc").split(" (").next().unwrap_or_default(),
    );
    if let Some(load) = all.run["machine"]["load"].as_f64().filter(|load| *load > BUSY) {
        page += &format!(
            " **Provisional**: other programs used the processors meanwhile (load {load} before the run), so the times are too long."
        );
    }
    page += "\n\n|";
    let mut stores = all.stores();
    stores.retain(|(name, _)| !(is_short && DETAILS.contains(&name.as_str())));
    for (name, version) in &stores {
        page += &match (name.as_str(), name.split_once(' ')) {
            ("files", _) => " | ours, files".to_owned(),
            ("sqlite", _) => " | ours, SQLite".to_owned(),
            (_, Some(("files", setting))) => format!(" | ours, files, `{setting}`"),
            (_, Some(("sqlite", setting))) => format!(" | ours, SQLite, `{setting}`"),
            (_, Some((library, setting))) => format!(" | {library} {version}, {setting}"),
            _ => format!(" | {name} {version}"),
        };
    }
    page += &format!(" |\n|{}", "---|".repeat(stores.len() + 1));
    for (name, _, cell) in ROWS.into_iter().filter(|(_, is_first, _)| *is_first || !is_short) {
        page += &format!("\n| {name} |");
        for (store, _) in &stores {
            page += &format!(" {} |", cell(all, store).unwrap_or("–".to_owned()));
        }
    }
    page + "\n"
}

impl Page {
    /// Returns the text of the page with the table between its two comments.
    pub(crate) fn with_table(&self, text: &str, all: &Measurements) -> Outcome<String> {
        let [begin, end] = [text.find(BEGIN), text.find(END)];
        let (Some(begin), Some(end)) = (begin, end) else {
            return Err(format!("{} has no lines {BEGIN:?} and {END:?}", self.file).into());
        };
        let table = markdown(all, self.is_short);
        Ok(format!("{}\n\n{table}\n{}", &text[..begin + BEGIN.len()], &text[end..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        let times = [4.2, 999.0, 1_500.0, 15_000.0, 2_000_000.0].map(time);
        assert_eq!(times, ["4 us", "999 us", "1.5 ms", "15 ms", "2.0 s"]);
        assert_eq!([7.0, 12_345.6].map(thousands), ["7", "12,346"]);
    }

    #[test]
    fn page_keeps_what_is_around_the_tables() {
        let run = serde_json::json!({ "stores": [{ "name": "files", "version": "" }, { "name": "a b", "version": "1" }, { "name": "tea-session", "version": "2" }] });
        let all = Measurements { run, all: Vec::new() };
        let [whole, short] = PAGES
            .map(|page| page.with_table(&format!("before\n{BEGIN}\nold\n{END}\nafter\n"), &all).unwrap());
        let page = whole;
        assert!(
            page.starts_with("before\n") && page.ends_with("\nafter\n") && !page.contains("old"),
            "{page}"
        );
        assert!(
            page.contains("| | ours, files | a 1, b | tea-session 2 |\n|---|---|---|---|\n| syncs of a turn | – | – | – |"),
            "{page}"
        );
        assert!(
            short.contains("| | ours, files | a 1, b |\n") && short.lines().count() < page.lines().count()
        );
        assert_eq!(PAGES[0].with_table(&page, &all).unwrap(), page);
        assert!(PAGES[0].with_table("", &all).is_err());
    }

    #[test]
    fn page_shows_if_the_machine_was_busy() {
        for (load, is_busy) in [(0.4, false), (5.6, true)] {
            let run = serde_json::json!({ "machine": { "load": load } });
            let page = markdown(&Measurements { run, all: Vec::new() }, false);
            assert_eq!(page.contains("load 5.6 before"), is_busy, "{page}");
        }
    }
}
