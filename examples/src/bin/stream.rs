//! Chats on the terminal: each line of stdin is a prompt, and the pieces of its answer are shown as they come.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is an example")]

use agent::core::async_trait;
use agent::runtime::context::ModelMessage;
use agent::runtime::{ModelEvent, ModelRequest, ModelStream};
use agent::{AgentBuilder, Conversation, EchoProvider, ErrorKind, LlmProvider, SqliteStore, Update};
use futures::{StreamExt, stream};
use std::error::Error;
use std::io::Write;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

/// Model that repeats what it hears, and fails in the middle of its answer at the word "fail".
#[derive(Debug)]
struct Parrot(EchoProvider);

#[async_trait]
impl LlmProvider for Parrot {
    fn name(&self) -> &str {
        "parrot"
    }
    fn model(&self) -> &str {
        "parrot-1"
    }
    async fn generate(&self, request: ModelRequest) -> agent::Result<ModelStream> {
        match request.messages.last() {
            Some(ModelMessage::User(said)) if said.text().split_whitespace().any(|word| word == "fail") => {
                let error = agent::Error::new(ErrorKind::Provider, "the parrot flew away");
                Ok(stream::iter([Ok(ModelEvent::text("I was about to say … ")), Err(error)]).boxed())
            }
            _ => self.0.generate(request).await,
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (file, key) = std::env::args().nth(1).zip(std::env::args().nth(2)).ok_or("usage: stream FILE KEY")?;
    let model = Parrot(EchoProvider::new().with_delay(Duration::from_millis(100)));
    let agent = AgentBuilder::new().with_llm(model).with_storage(SqliteStore::open(file).await?).build()?;
    let failures = async { talk(&agent.conversation(&key).await?).await }.await;
    agent.close().await?;
    match failures? {
        0 => Ok(()),
        failures => Err(format!("{failures} of the answers failed").into()),
    }
}

/// Answers each line of stdin; returns the number of answers that failed.
async fn talk(chat: &Conversation) -> Result<u32, Box<dyn Error>> {
    let (mut lines, mut failures) = (BufReader::new(stdin()).lines(), 0);
    while let Some(line) = lines.next_line().await? {
        if line.trim().is_empty() {
            continue;
        }
        let mut run = chat.prompt(line).await?;
        while let Some(update) = run.next().await {
            let piece = match update {
                Ok(Update::Text(piece)) => Ok(piece),
                Ok(Update::Failed(failure)) => Err(failure.text),
                // The other program is at work: this line is answered by its next run, or by one of ours.
                Ok(Update::Queued(queued)) => {
                    eprintln!("(waiting for {})", queued.holder.as_deref().unwrap_or("its turn"));
                    chat.wait_for_answer(&queued)
                        .await
                        .map(|report| report.text)
                        .map_err(|error| error.to_string())
                }
                Ok(_) => continue,
                Err(error) => Err(error.to_string()),
            };
            failures += u32::from(piece.is_err());
            match piece {
                Ok(piece) => write!(std::io::stdout(), "{piece}")?,
                Err(error) => eprintln!("error: {error}"),
            }
            std::io::stdout().flush()?;
        }
        writeln!(std::io::stdout())?;
    }
    Ok(failures)
}
