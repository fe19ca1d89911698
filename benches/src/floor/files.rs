//! Files by hand: lines at the end of a file, synced.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agent_core::async_trait;
use agent_core::event::Event;

use super::work::{Floor, LINE, RECORD};
use crate::outcome::Outcome;

pub(super) struct Files {
    folder: PathBuf,
    log: File,
    is_synced: bool,
    created: u32,
}

impl Files {
    pub(super) fn new(folder: PathBuf, is_synced: bool) -> Outcome<Self> {
        let log = File::create(folder.join("log"))?;
        Ok(Self { folder, log, is_synced, created: 0 })
    }

    fn listed(&self, n: u32) -> PathBuf {
        self.folder.join(format!("session {n}"))
    }
}

fn append(log: &mut File, messages: u32, is_synced: bool) -> std::io::Result<()> {
    log.write_all(&vec![b'x'; LINE * messages as usize])?;
    if is_synced { log.sync_data() } else { Ok(()) }
}

#[async_trait]
impl Floor for Files {
    fn write(&mut self, messages: u32) -> Outcome {
        Ok(append(&mut self.log, messages, self.is_synced)?)
    }

    async fn write_at_once(&mut self, writers: u32, turns: u32, messages: u32) -> Outcome<Vec<Duration>> {
        let tasks = (0..writers).map(|n| {
            let path = self.folder.join(format!("writer {n}"));
            tokio::task::spawn_blocking(move || {
                let mut log = File::options().append(true).create(true).open(path)?;
                let one = |_| {
                    let start = Instant::now();
                    append(&mut log, messages, true).map(|()| start.elapsed())
                };
                (0..turns).map(one).collect::<std::io::Result<Vec<_>>>()
            })
        });
        let mut latencies = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            latencies.extend(task.await??);
        }
        Ok(latencies)
    }

    fn fill(&mut self, lines: &[String]) -> Outcome {
        let last = lines.len().saturating_sub(50);
        fs::write(self.folder.join("tail"), lines[last..].join("\n"))?;
        // Line by line, as a log grows: the system reads a file that was written at once in larger pieces.
        let mut log = File::create(self.folder.join("lines"))?;
        for line in lines {
            log.write_all(format!("{line}\n").as_bytes())?;
        }
        Ok(())
    }

    fn last_50(&mut self) -> Outcome {
        std::hint::black_box(fs::read(self.folder.join("tail"))?);
        Ok(())
    }

    fn load(&mut self) -> Outcome {
        let text = fs::read_to_string(self.folder.join("lines"))?;
        let parsed: Vec<Event> = text.lines().map(Event::from_json).collect::<agent_core::Result<_>>()?;
        std::hint::black_box(parsed);
        Ok(())
    }

    fn fill_list(&mut self, sessions: u32) -> Outcome {
        for n in 0..sessions {
            fs::write(self.listed(n), [b'x'; RECORD])?;
        }
        Ok(())
    }

    fn list_50(&mut self) -> Outcome {
        for n in 0..50 {
            std::hint::black_box(fs::metadata(self.listed(n))?.modified()?);
        }
        Ok(())
    }

    fn create(&mut self) -> Outcome {
        self.created += 1;
        let (part, name) = (self.folder.join("part"), self.folder.join(format!("created {}", self.created)));
        let mut file = File::create(&part)?;
        file.write_all(&[b'x'; RECORD])?;
        file.sync_all()?;
        fs::rename(part, name)?;
        Ok(File::open(&self.folder)?.sync_all()?)
    }
}
