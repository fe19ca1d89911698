//! Lists thirty conversations page by page and by label, finds one by its title, and shows the newest message of each.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is an example")]

use std::borrow::Cow;

use agent::core::event::EventType;
use agent::core::model::{Patch, Title};
use agent::core::session::SessionSummary;
use agent::core::store::ReadEvents;
use agent::runtime::views::find_sessions;
use agent::{AgentBuilder, AgentRuntime, EchoProvider, SessionQuery};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("memory:".to_owned());
    let storage = agent::open_storage(&address).await?;
    let agent = AgentBuilder::new().with_llm(EchoProvider::new()).with_storage(storage).build()?;
    for order in 1..=30 {
        let chat = agent.conversation(&format!("order/{order}")).await?;
        let team = if order % 3 == 0 { "support" } else { "sales" };
        let title = Title::by_user(format!("Refund for order {order}"));
        chat.update(Patch::new().with_title(title).with_label("team", team)).await?;
        for question in ["Where is it?", "When does it come?"] {
            chat.ask(format!("{question} (order {order})")).await?;
        }
    }

    let mut query = SessionQuery::new().with_label("team", "sales").with_limit(7).with_total();
    for number in 1.. {
        let page = agent.storage().sessions.list(query.clone()).await?;
        println!("page {number}, {} on it, {} in all", page.items.len(), page.total.unwrap_or(0));
        for session in &page.items {
            show(&agent, session).await?;
        }
        for damaged in &page.damaged {
            eprintln!("damaged: {damaged}");
        }
        if page.next.is_none() {
            break;
        }
        query = query.with_cursor(page.next);
    }

    let word = std::env::args().nth(2).unwrap_or("ORDER 17".to_owned());
    let found = find_sessions(&*agent.storage().sessions, SessionQuery::new(), &word).await?;
    println!("found by {word:?}: {}", found.items.len());
    for session in &found.items {
        show(&agent, session).await?;
    }
    agent.close().await?;
    Ok(())
}

/// Prints the title and the newest message of a session. Reads one event of its log, however long that is.
async fn show(agent: &AgentRuntime, session: &SessionSummary) -> agent::Result<()> {
    let read = ReadEvents::last(1).with_types([EventType::USER_MESSAGE, EventType::AGENT_MESSAGE]);
    let page = agent.conversation_by_id(session.id).await?.history(read).await?;
    let newest = page.events.first().and_then(agent::core::event::Event::text).map(Cow::into_owned);
    let title = session.attributes.title.as_ref().map_or("(no title)", |title| &title.text);
    println!("  {title}: {}", newest.unwrap_or_default());
    Ok(())
}
