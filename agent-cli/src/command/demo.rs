//! `chat demo`: a program that is killed in the middle of an answer, and what its next start finds.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent_core::Storage;
use agent_core::store::SessionQuery;
use agent_storage_fs::FsConfig;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::spawn_blocking;

use crate::args::Args;
use crate::failure::{Failure, Result};
use crate::output::Out;
use crate::stdout;

/// Message that is sent; the offline model repeats it.
const MESSAGE: &str = "one two three four five six seven eight nine ten";
/// Number of words of the answer after which the program is killed.
const WORDS: usize = 4;
/// Milliseconds before each word of the answer.
const DELAY: &str = "80";

/// Kills a program in the middle of its answer, starts it again, and checks what it stored.
pub(super) async fn run(args: &Args) -> Result<()> {
    if args.store.is_some() || args.data_dir.is_some() || args.tenant.is_some() || args.owner.is_some() {
        let why = "`chat demo` uses a temporary folder of its own; leave --store, --data-dir, --tenant and --owner out";
        return Err(Failure::new(2, "invalid_input", why));
    }
    let folder = tempfile::Builder::new()
        .prefix("chat-demo-")
        .tempdir()
        .map_err(|error| io("make a folder", &error))?;
    let (path, json) = (folder.path().to_owned(), args.json);
    let stop = Arc::new(AtomicBool::new(false));
    let mut work = spawn_blocking({
        let stop = stop.clone();
        move || tokio::runtime::Handle::current().block_on(shown(&path, json, &stop))
    });
    let signals = async || -> std::io::Result<u8> {
        let [mut interrupt, mut terminate, mut hangup] = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        Ok(tokio::select! {
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
            _ = hangup.recv() => 129,
        })
    };
    let done = tokio::select! {
        done = &mut work => done,
        code = signals() => {
            let code = code.map_err(|error| io("wait for signals", &error))?;
            // It ends with the next piece that it reads, and with it the program that it has started.
            stop.store(true, Ordering::Relaxed);
            let _ = work.await;
            return Err(Failure::new(code, "interrupted", "stopped; the folder of the demo is removed"));
        }
    };
    done.map_err(|error| Failure::new(1, "failed", error.to_string()))??;
    folder.close().map_err(|error| io("remove the folder", &error))
}

/// Shows the demo in a folder, until it is to stop.
async fn shown(folder: &Path, json: bool, stop: &AtomicBool) -> Result<()> {
    let show = |text: &str| {
        if !json {
            stdout::put(text);
        }
    };
    show(&format!("$ chat --data-dir {}\n> {MESSAGE}\n", folder.display()));
    let mut first = Chat::start(folder)?;
    first.send(MESSAGE)?;
    let begun = first.answer(Some(WORDS), stop, &show)?;
    first.kill()?;
    show("\nKilled, by SIGKILL. The program had no moment to store anything.\n\n");

    show(&format!("$ chat --data-dir {}\n", folder.display()));
    let left = stored(folder).await?;
    show(&format!("(in the store: {} message, {} answers)\n> /run\n", left.0, left.1));
    let mut second = Chat::start(folder)?;
    second.send("/run")?;
    let answer = second.answer(None, stop, &show)?;
    second.kill()?;

    let (messages, answers) = stored(folder).await?;
    if (messages, answers) != (1, 1) || answer.trim() != MESSAGE {
        return Err(Failure::new(
            1,
            "corruption",
            format!("{messages} messages and {answers} answers are stored, and not one of each: {answer:?}"),
        ));
    }
    Out::new(json).result(
        &json!({"messages": messages, "answers": answers, "before_the_kill": begun.trim(), "after_it": answer.trim()}),
        "\nThe message is stored once, and so is its answer. `chat` alone begins a conversation of yours.",
    );
    Ok(())
}

/// Returns the numbers of messages and of answers that are stored.
async fn stored(folder: &Path) -> Result<(u64, u64)> {
    let storage: Storage = FsConfig::new(folder).open().await?.into();
    let listed = storage.sessions.list(SessionQuery::new()).await?.items;
    storage.close().await?;
    Ok(listed.iter().fold((0, 0), |sum, it| (sum.0 + it.counts.user, sum.1 + it.counts.agent)))
}

/// This program, as a child; killed when it is dropped.
struct Chat(Child);

impl Chat {
    fn start(folder: &Path) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| io("find this program", &error))?;
        Command::new(program)
            .arg("--data-dir")
            .arg(folder)
            .args(["--echo-delay-ms", DELAY])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map(Self)
            .map_err(|error| io("start this program again", &error))
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let Some(stdin) = &mut self.0.stdin else { return Ok(()) };
        writeln!(stdin, "{line}").map_err(|error| io("write to the program", &error))
    }

    /// Reads and shows the answer to its end, or for this number of words.
    fn answer(&mut self, words: Option<usize>, stop: &AtomicBool, show: &impl Fn(&str)) -> Result<String> {
        let mut answer = String::new();
        let Some(out) = &mut self.0.stdout else { return Ok(answer) };
        let mut byte = [0];
        while out.read(&mut byte).map_err(|error| io("read from the program", &error))? == 1 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let text = String::from_utf8_lossy(&byte);
            show(&text);
            answer.push_str(&text);
            let is_end = byte == *b"\n" || words.is_some_and(|words| answer.matches(' ').count() == words);
            if is_end {
                return Ok(answer);
            }
        }
        Err(Failure::new(1, "io", format!("the program ended before its answer: {answer:?}")))
    }

    fn kill(&mut self) -> Result<()> {
        self.0.kill().and_then(|()| self.0.wait()).map(drop).map_err(|error| io("kill the program", &error))
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        // After an error; there is nobody left to tell.
        let _ = self.kill();
    }
}

fn io(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(1, "io", format!("cannot {what}: {error}"))
}
