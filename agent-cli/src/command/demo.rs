//! `chat demo`: a program that is killed in the middle of an answer, and what its next start finds.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use agent_core::Storage;
use agent_core::store::SessionQuery;
use agent_storage_fs::FsConfig;
use serde_json::json;

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
    let show = |text: &str| {
        if !args.json {
            stdout::put(text);
        }
    };
    show(&format!("$ chat --data-dir {}\n> {MESSAGE}\n", folder.path().display()));
    let mut first = Chat::start(folder.path())?;
    first.send(MESSAGE)?;
    let begun = first.answer(Some(WORDS), &show)?;
    first.kill()?;
    show("\nKilled, by SIGKILL. The program had no moment to store anything.\n\n");

    show(&format!("$ chat --data-dir {}\n", folder.path().display()));
    let left = stored(folder.path()).await?;
    show(&format!("(in the store: {} message, {} answers)\n> /run\n", left.0, left.1));
    let mut second = Chat::start(folder.path())?;
    second.send("/run")?;
    let answer = second.answer(None, &show)?;
    second.kill()?;

    let (messages, answers) = stored(folder.path()).await?;
    if (messages, answers) != (1, 1) || answer.trim() != MESSAGE {
        return Err(Failure::new(
            1,
            "corruption",
            format!("{messages} messages and {answers} answers are stored, and not one of each: {answer:?}"),
        ));
    }
    Out::new(args.json).result(
        &json!({"messages": messages, "answers": answers, "before_the_kill": begun.trim(), "after_it": answer.trim()}),
        "\nThe message is stored once, and so is its answer. `chat` alone begins a conversation of yours.",
    );
    folder.close().map_err(|error| io("remove the folder", &error))
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
    fn answer(&mut self, words: Option<usize>, show: &impl Fn(&str)) -> Result<String> {
        let mut answer = String::new();
        let Some(out) = &mut self.0.stdout else { return Ok(answer) };
        let mut byte = [0];
        while out.read(&mut byte).map_err(|error| io("read from the program", &error))? == 1 {
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
