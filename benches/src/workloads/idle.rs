//! Memory of another process for each of many conversations that are open and idle.

use std::path::Path;

use agent_runtime::{AgentBuilder, Config, EchoProvider};

use super::place::Place;
use crate::counts::memory;
use crate::ours::Backend;
use crate::outcome::Outcome;
use crate::report::{Figure, Measured};

/// How many conversations are open.
const OPEN: usize = 1_000;
/// Number of processes that are measured.
const TIMES: usize = 5;

pub(super) fn idle(place: &Place) -> Outcome<Figure> {
    let mut each = Vec::new();
    for n in 0..TIMES {
        let done = place.backend.process("idle")?.arg(place.path(&format!("idle {n}"))).output()?;
        let more: f64 = String::from_utf8(done.stdout)?.trim().parse()?;
        each.push(more / OPEN as f64 / 1024.0);
    }
    each.sort_by(f64::total_cmp);
    let figure = Figure::new(place.backend, "idle conversation", Measured::Value(each[TIMES / 2], "KiB"));
    Ok(figure.aim("under 8 KiB").note("resident, after one turn each: median of 5 processes".to_owned()))
}

/// What the other process does: says how many bytes its memory rose.
pub(crate) async fn worker(backend: Backend, path: &Path) -> Outcome {
    let storage = backend.open_storage(path, true).await?;
    // What is kept between runs has a budget of its own.
    let config = Config::new().with_context_cache_bytes(0);
    let builder = AgentBuilder::new().with_llm(EchoProvider::new()).with_config(config);
    let agent = builder.with_storage(storage).build()?;
    // What every process has, whatever is open in it, is there after some conversations.
    for n in 0..OPEN {
        agent.conversation(&format!("first/{n}")).await?.ask("Hello").await?;
    }
    let before = memory();
    let mut chats = Vec::with_capacity(OPEN);
    for n in 0..OPEN {
        let chat = agent.conversation(&n.to_string()).await?;
        chat.ask("Hello").await?;
        chats.push(chat);
    }
    println!("{}", memory().saturating_sub(before));
    drop(chats);
    Ok(agent.storage().close().await?)
}
