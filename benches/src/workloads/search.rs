//! Searches in many messages, with an index and without one.

use std::time::Instant;

use agent_core::Sessions;
use agent_core::event::NewEvent;
use agent_core::search::Search;
use agent_core::store::{PAGE_MAX, SessionQuery};

use super::place::Place;
use crate::outcome::Outcome;
use crate::report::{Figure, Measured};
use crate::rounds::alone;

/// Messages of a session, and of a commit.
const SESSION: usize = 500;
const COMMIT: usize = 100;

/// Different words of the texts that are made up, and words of a message.
const VOCABULARY: usize = 100_000;
const WORDS: usize = 32;

/// Makes the index of many messages and asks it. The texts are made up of words of which few are frequent, or are the paragraphs of the file
/// that `BENCH_TEXT` names.
pub(super) async fn search(place: &Place) -> Outcome<Vec<Figure>> {
    let (texts, asked) = match std::env::var("BENCH_TEXT") {
        Ok(path) => (paragraphs(&std::fs::read_to_string(path)?), Vec::new()),
        Err(_) => {
            let count = if place.quick { 20_000 } else { 1_000_000 };
            let asked = [
                ("a frequent word", "w0"),
                ("a rare word", "rareword"),
                ("two words", "w20 w300"),
                ("a phrase", "\"w1 w2\""),
            ];
            (made_up(count), asked.to_vec())
        }
    };
    let (count, bytes) = (texts.len(), texts.iter().map(String::len).sum::<usize>());
    let path = place.path("ours");
    let filling = place.backend.open_storage(&path, true).await?.sessions;
    fill(&filling, texts).await?;
    let mut figures = Vec::new();
    let mut value = |name: String, value: f64, unit, aim| {
        figures.push(Figure::new(place.backend, name, Measured::Value(value, unit)).aim(aim));
    };
    let began = Instant::now();
    let updated = filling.update_search_index().await?;
    assert!(updated.is_complete && updated.sessions > 0);
    let name = format!("index {count} messages");
    value(name, count as f64 / began.elapsed().as_secs_f64(), "messages/s", "20,000");
    let of_index = weight(&filling).await? as f64 / bytes as f64;
    value("index, for a byte of text".into(), of_index, "bytes", "0.25, 1.7 where words are not separated");
    filling.close().await?;
    place.backend.settle().await?;
    let ours = place.backend.open(&path).await?;
    for (name, query) in asked {
        let search = Search::new(query);
        let ask = async |times| {
            for _ in 0..times {
                let page = ours.search(&search).await?;
                assert!(page.is_complete && !page.hits.is_empty());
            }
            Ok(Vec::new())
        };
        let figure = Figure::new(
            place.backend,
            format!("find {name} in {count}"),
            Measured::Time { ours: alone(&place.meter, 3, ask).await?, floor: None },
        );
        figures.push(figure.aim("under 50 ms"));
    }
    Ok(figures)
}

/// Bytes of the segments.
async fn weight(sessions: &Sessions) -> Outcome<u64> {
    let query = SessionQuery::new().with_label("hidden", "search-segment").with_hidden().with_limit(PAGE_MAX);
    let mut bytes = 0;
    for session in sessions.list(query).await?.items {
        let blobs = sessions.blobs().list(agent_core::store::BlobQuery::new(session.id)).await?;
        bytes += blobs.items.iter().map(|blob| blob.bytes).sum::<u64>();
    }
    Ok(bytes)
}

async fn fill(sessions: &Sessions, texts: Vec<String>) -> Outcome {
    let mut texts = texts.into_iter().peekable();
    while texts.peek().is_some() {
        let mut session = crate::ours::new_session(sessions).await?;
        for _ in 0..SESSION / COMMIT {
            let events: Vec<_> = texts.by_ref().take(COMMIT).map(NewEvent::agent_message).collect();
            if !events.is_empty() {
                session = sessions.append(session.id, session.head, events).await?.session;
            }
        }
    }
    Ok(())
}

/// Texts in which the word `n` has the weight `1 / n`, as words of languages do.
fn made_up(count: usize) -> Vec<String> {
    let mut state = 7_u64;
    let mut random = move || {
        // A generator of Lehmer: the same texts in each run.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let text = |n: usize| {
        let mut text = String::new();
        for _ in 0..WORDS {
            let word = (VOCABULARY as f64).powf(random()) as usize - 1;
            text.push_str(&format!("w{word} "));
        }
        if n == count / 3 {
            text.push_str("rareword");
        }
        text
    };
    (0..count).map(text).collect()
}

fn paragraphs(text: &str) -> Vec<String> {
    text.split("\n\n").map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned).collect()
}
