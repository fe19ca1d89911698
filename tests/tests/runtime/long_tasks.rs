//! Notes to a model about text that is not shown whole: the first task of a compacted history, and a long message.

use agent_core::MemoryStore;
use agent_core::event::{Media, Message, Part};
use agent_core::json::RawJson;
use agent_runtime::context::{ContextLimits, ModelMessage};
use agent_runtime::{Config, ModelPart, ScriptedProvider, ToolMode, Turn};
use agent_tests::{Site, each_store};

use crate::common::{Tools, agent_with, check_log};

fn texts(model: &ScriptedProvider) -> Vec<Vec<String>> {
    let text = |message: &ModelMessage| message.text().into_owned();
    model.requests().iter().map(|request| request.messages.iter().map(text).collect()).collect()
}

async fn the_first_task_is_in_the_summary(site: Site) {
    let model = ScriptedProvider::new((0..80).map(|n| Turn::new().text(format!("answer {n}"))));
    let config = Config::new().with_context_limits(ContextLimits::new(8, 20_000));
    let storage = site.open().await;
    let chat = agent_with(&storage, model.clone(), config.clone(), []).conversation("key").await.unwrap();
    let task = format!("Sort the books by {}colour.", "size and then by ".repeat(1000));
    chat.prompt(&*task).await.unwrap().finish().await.unwrap();
    for n in 0..20 {
        chat.prompt(format!("step {n}")).await.unwrap().finish().await.unwrap();
    }
    let fork = chat.fork(None).await.unwrap();
    for n in 0..10 {
        fork.prompt(format!("step {n} there")).await.unwrap().finish().await.unwrap();
    }
    let requests = texts(&model);
    let summaries: Vec<_> =
        requests.iter().map(|request| &request[0]).filter(|text| !text.starts_with("Sort")).collect();
    assert!(summaries.len() > 20, "{}: {requests:?}", site.name);
    for summary in summaries {
        assert!(
            summary.starts_with("The conversation began with this message:\nSort the books by size")
                && summary.contains("colour.\n")
                && summary.ends_with(" earlier events are left out.")
                && summary.len() < 20_000 / 8 + 200,
            "{}: {summary}",
            site.name
        );
    }
}
each_store!(the_first_task_is_in_the_summary);

/// The model is shown how much of a message is left out, and reads it, also in a fork.
async fn the_rest_of_a_long_message_can_be_read(site: Site) {
    let text: String = (0..100_000).map(|n| format!("{n:09}\n")).collect();
    let model = ScriptedProvider::new([Turn::new().text("Hello.")]);
    let agent = agent_with(
        &site.open().await,
        model.clone(),
        Config::new(),
        [Tools::new([("look", ToolMode::Direct)]) as _],
    );
    let chat = agent.conversation("key").await.unwrap();
    chat.prompt("Hello").await.unwrap().finish().await.unwrap();
    let seq =
        chat.send(Message::new(&*text).with_part(Part::Resource(Media::uri("a/b", "x")))).await.unwrap();
    let read = |offset: usize| {
        let input = format!(r#"{{"output":"message-{seq}","offset":{offset},"bytes":70}}"#);
        Turn::new().call(&format!("c{offset}"), "read_output", RawJson::parse(&input).unwrap())
    };
    for turn in [read(500_000), read(999_990), read(1_000_000), Turn::new().text("Done.")] {
        model.push(turn);
    }
    chat.prompt("Go on").await.unwrap().finish().await.unwrap();
    let fork = chat.fork(None).await.unwrap();
    for turn in [read(20), Turn::new().text("Done.")] {
        model.push(turn);
    }
    fork.prompt("And here?").await.unwrap().finish().await.unwrap();
    let requests = texts(&model);
    let shown = requests[1].iter().find(|text| text.starts_with("000000000\n")).unwrap();
    let cut = format!(
        "[… bytes 131072 to 868928 of 1000000 left out; read them with read_output: output message-{seq}, offset 131072 …]"
    );
    assert!(shown.contains(&cut) && shown.len() < 300_000, "{}: {}", site.name, &shown[131_000..131_300]);
    let results: Vec<_> = requests.last().unwrap().iter().filter(|text| text.contains("; ")).collect();
    let of = |from: usize| {
        let to = from + 70;
        format!("[bytes {from} to {to} of 1000000; read on at offset {to}]\n{}", &text[from..to])
    };
    assert!(results.iter().any(|result| **result == of(500_000)), "{}: {results:?}", site.name);
    assert!(results.iter().any(|result| **result == of(20)), "{}: {results:?}", site.name);
    let end = "[bytes 999990 to 1000000 of 1000000; this is the end]\n000099999\n";
    assert!(results.iter().any(|result| **result == end), "{}: {results:?}", site.name);
    assert!(results.iter().any(|result| result.contains("give an offset below that")), "{}", site.name);
    check_log(&chat).await;
}
each_store!(the_rest_of_a_long_message_can_be_read);

/// An answer of many parts that is over the limits by itself is replaced by a summary, and not dropped without one.
async fn a_large_answer_is_not_dropped_silently(site: Site) {
    let answer =
        (0..12).fold(Turn::new(), |turn, n| turn.part(ModelPart::text(format!("{n} {}", "x".repeat(400)))));
    let model = ScriptedProvider::new([answer, Turn::new().text("so"), Turn::new().text("so")]);
    let config = Config::new().with_context_limits(ContextLimits::new(1000, 3000));
    let chat = agent_with(&site.open().await, model.clone(), config, []).conversation("key").await.unwrap();
    for text in ["One", "Two", "Three"] {
        chat.prompt(text).await.unwrap().finish().await.unwrap();
    }
    let requests = texts(&model);
    assert!(requests[1][0].contains("earlier events are left out"), "{}: {requests:?}", site.name);
    assert_eq!(requests[2][..requests[1].len()], requests[1], "{}", site.name);
    check_log(&chat).await;
}
each_store!(a_large_answer_is_not_dropped_silently);

/// Without tools nothing is promised.
#[tokio::test]
async fn a_model_without_tools_gets_a_note_of_omissions() {
    let model = ScriptedProvider::new([Turn::new().text("Hello.")]);
    let agent = agent_with(&MemoryStore::new().into(), model.clone(), Config::new(), []);
    let chat = agent.conversation("key").await.unwrap();
    chat.prompt("x".repeat(1_000_000)).await.unwrap().finish().await.unwrap();
    let shown = &texts(&model)[0][0];
    assert!(shown.contains("\n[… 737856 bytes left out …]\n"), "{}", &shown[131_000..131_200]);
}
