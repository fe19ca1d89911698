//! Turns of an open conversation, from the prompt to the report of the run, with a model that answers at once.

use agent_runtime::{AgentBuilder, AgentRuntime, EchoProvider};

use super::place::Place;
use super::write::prompt;
use crate::ours::Ours;
use crate::outcome::Outcome;
use crate::report::Figure;
use crate::rounds::compare;

/// Number of turns of each round: few, so that the conversation stays about as long as its name says.
const TURNS: u32 = 4;

/// Turns of conversations that have so many already. The floor is two commits with a lease.
pub(super) async fn turns(place: &Place) -> Outcome<Vec<Figure>> {
    let mut figures = Vec::new();
    for before in [10, 100, 300, 1_500] {
        if before > 300 && place.quick {
            continue;
        }
        figures.push(turns_after(place, before).await?);
    }
    Ok(figures)
}

async fn turns_after(place: &Place, before: u32) -> Outcome<Figure> {
    let path = place.path(&format!("end to end {before}"));
    let text = "x".repeat(600);
    let filling = agent(place, &path, true).await?;
    let chat = filling.conversation("long").await?;
    for _ in 0..before {
        chat.ask(text.clone()).await?;
    }
    drop((chat, filling));
    let agent = agent(place, &path, false).await?;
    let chat = agent.conversation("long").await?;
    let store = agent.storage().sessions.clone();
    let session = crate::ours::new_session(&store).await?;
    let mut bare = Ours { path, effects: store.effects().clone(), store, session };
    let sides = compare(
        &place.meter,
        TURNS,
        async |times| {
            for _ in 0..times {
                chat.ask(text.clone()).await?;
            }
            Ok(Vec::new())
        },
        async |times| {
            for _ in 0..times {
                prompt(&mut bare, &text).await?;
            }
            Ok(Vec::new())
        },
    )
    .await?;
    let figure = Figure::timed(place.backend, format!("a turn after {before}, from prompt to finish"), sides);
    Ok(figure.aim("at most 1.5").note("floor: two commits with a lease".to_owned()))
}

async fn agent(place: &Place, path: &std::path::Path, fills: bool) -> Outcome<AgentRuntime> {
    let storage = place.backend.open_storage(path, fills).await?;
    Ok(AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage).build()?)
}
