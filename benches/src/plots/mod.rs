//! Plots of the docs, drawn from measurements that are stored: they are drawn again without measuring.

use bench_worker::Task;

use crate::beside::Measurements;

mod chart;

use chart::{Chart, Line, Unit};

/// A plot: its file, and the measurements that it shows.
struct Plot {
    file: &'static str,
    title: &'static str,
    x: &'static str,
    unit: Unit,
    /// Makes the task of a size, and so chooses the measurements.
    task: fn(u32) -> Task,
}

const PLOTS: [Plot; 4] = [
    Plot {
        file: "append-by-length.svg",
        title: "time of a turn, two messages of 1 KiB",
        x: "messages in the session",
        unit: Unit::Micros,
        task: Task::Turn,
    },
    Plot {
        file: "last-50-by-length.svg",
        title: "time to read the last 50 messages",
        x: "messages in the session",
        unit: Unit::Micros,
        task: Task::Last,
    },
    Plot {
        file: "turns-by-writers.svg",
        title: "turns per second of all writers",
        x: "writers, each in a session of its own",
        unit: Unit::PerSecond,
        task: Task::Writers,
    },
    Plot {
        file: "list-50-by-sessions.svg",
        title: "time to list the 50 newest sessions",
        x: "sessions in the store",
        unit: Unit::Micros,
        task: Task::List,
    },
];

/// Draws all plots: the name of each file, and its content.
pub(crate) fn draw(all: &Measurements) -> Vec<(&'static str, String)> {
    PLOTS.iter().map(|plot| (plot.file, plot.chart(all).svg())).collect()
}

impl Plot {
    fn chart(&self, all: &Measurements) -> Chart {
        let lines = all.stores().into_iter().enumerate().map(|(number, (store, version))| {
            let of_line = all.all.iter().filter(|one| one.store == store);
            let of_task = of_line.filter(|one| (self.task)(one.size).name() == one.task);
            let mut points: Vec<(f64, f64)> = of_task
                .map(|one| match self.unit {
                    Unit::Micros => (f64::from(one.size), one.median()),
                    Unit::PerSecond => (f64::from(one.size), 1e6 / one.median()),
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let syncs = all.find(Task::Turn(100), &store).and_then(|turn| turn.syncs_exact);
            // What a write costs says little without what it promises.
            let promise = match (self.task)(0) {
                Task::Turn(_) | Task::Writers(_) => match syncs {
                    Some(0.0) => " (no sync)",
                    _ => "",
                },
                _ => "",
            };
            let name = match store.as_str() {
                "files" => "ours, files".to_owned(),
                "sqlite" => "ours, SQLite".to_owned(),
                other => match other.split_once(' ') {
                    Some((library, setting)) => format!("{library} {version}, {setting}"),
                    None => format!("{other} {version}"),
                },
            };
            Line { name: format!("{name}{promise}"), number, is_ours: version.is_empty(), points }
        });
        Chart {
            title: self.title,
            x: self.x,
            unit: self.unit,
            lines: lines.filter(|line| !line.points.is_empty()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn docs() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
    }

    /// The plots and tables of the docs show the measurements that are stored with them.
    #[test]
    fn docs_show_the_stored_measurements() {
        let all = Measurements::read(&docs().join("measurements.jsonl")).unwrap();
        let redraw = "`cargo run --release -p benches -- plots docs` draws it again";
        for (file, svg) in draw(&all) {
            let stored = std::fs::read_to_string(docs().join(file)).unwrap_or_default();
            assert!(stored == svg, "{file}: {redraw}");
        }
        for page in crate::beside::PAGES {
            let text = std::fs::read_to_string(docs().join(page.file)).unwrap();
            assert!(page.with_table(&text, &all).unwrap() == text, "{}: {redraw}", page.file);
        }
    }

    #[test]
    fn pages_embed_every_plot() {
        let page = std::fs::read_to_string(docs().join("performance.md")).unwrap();
        for plot in PLOTS {
            assert!(page.contains(&format!("]({})", plot.file)), "{}", plot.file);
        }
    }
}
