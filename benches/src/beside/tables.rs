//! Tables of the docs, made from measurements.

use bench_worker::Task;

use super::measurement::{Measurement, Measurements};
use crate::outcome::Outcome;

/// Comments between which a page has the tables.
const BEGIN: &str = "<!-- beside: made by the harness -->";
const END: &str = "<!-- beside: end -->";

/// Load above which the page says that the machine was busy.
const BUSY: f64 = 1.0;

/// A row of the table: its name, and the cell of a store.
type Row = (&'static str, fn(&Measurements, &str) -> Option<String>);

const ROWS: [Row; 8] = [
    ("syncs of a turn", |all, store| {
        let turn = all.find(Task::Turn(100), store)?;
        Some(turn.syncs_exact.map_or("not counted".to_owned(), |syncs| format!("{syncs}")))
    }),
    ("a turn", |all, store| Some(time(all.find(Task::Turn(100), store)?.median()))),
    ("a turn at 10,000 against at 100 messages", |all, store| {
        let [long, short] = [10_000, 100].map(|size| all.find(Task::Turn(size), store));
        Some(format!("{:.2}", long?.median() / short?.median()))
    }),
    ("32 sessions at once", |all, store| Some(rate(all.find(Task::Writers(32), store)?))),
    ("load 10,000 messages", |all, store| Some(time(all.find(Task::Load(10_000), store)?.median()))),
    ("last 50 of 100,000 messages", |all, store| Some(time(all.find(Task::Last(100_000), store)?.median()))),
    ("list 50 of 10,000 sessions", |all, store| Some(time(all.find(Task::List(10_000), store)?.median()))),
    ("fork of 10,000 messages", |all, store| Some(time(all.find(Task::Fork(10_000), store)?.median()))),
];

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
    let (rate, p99) = (1e6 / at_once.median(), at_once.p99_ms.unwrap_or(f64::NAN));
    let refused =
        if at_once.refused == 0 { String::new() } else { format!(", {} calls refused", at_once.refused) };
    format!("{}/s, p99 {}{refused}", thousands(rate), time(p99 * 1e3))
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (head, tail) = digits.split_at(digits.len().saturating_sub(3));
    if head.is_empty() { tail.to_owned() } else { format!("{head},{tail}") }
}

/// Returns a sentence about the machine, and the table of all stores and libraries.
fn markdown(all: &Measurements) -> String {
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
    let stores = all.stores();
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
    for (name, cell) in ROWS {
        page += &format!("\n| {name} |");
        for (store, _) in &stores {
            page += &format!(" {} |", cell(all, store).unwrap_or("–".to_owned()));
        }
    }
    page + "\n"
}

/// Returns a page with the tables between its two comments.
pub(crate) fn with_tables(page: &str, all: &Measurements) -> Outcome<String> {
    let [begin, end] = [page.find(BEGIN), page.find(END)];
    let (Some(begin), Some(end)) = (begin, end) else {
        return Err(format!("the page has no lines {BEGIN:?} and {END:?}").into());
    };
    Ok(format!("{}\n\n{}\n{}", &page[..begin + BEGIN.len()], markdown(all), &page[end..]))
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
        let run = serde_json::json!({ "stores": [{ "name": "files", "version": "" }, { "name": "a b", "version": "1" }] });
        let all = Measurements { run, all: Vec::new() };
        let page = with_tables(&format!("before\n{BEGIN}\nold\n{END}\nafter\n"), &all).unwrap();
        assert!(
            page.starts_with("before\n") && page.ends_with("\nafter\n") && !page.contains("old"),
            "{page}"
        );
        assert!(
            page.contains("| | ours, files | a 1, b |\n|---|---|---|\n| syncs of a turn | – | – |"),
            "{page}"
        );
        assert_eq!(with_tables(&page, &all).unwrap(), page);
        assert!(with_tables("", &all).is_err());
    }

    #[test]
    fn page_shows_if_the_machine_was_busy() {
        for (load, is_busy) in [(0.4, false), (5.6, true)] {
            let run = serde_json::json!({ "machine": { "load": load } });
            let page = markdown(&Measurements { run, all: Vec::new() });
            assert_eq!(page.contains("load 5.6 before"), is_busy, "{page}");
        }
    }
}
