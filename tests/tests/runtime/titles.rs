//! Titles that a model writes.

use std::time::Duration;

use agent_core::ErrorKind;
use agent_runtime::{Gate, ScriptedProvider, Turn};
use agent_tests::{Site, each_store};
use tokio::time::timeout;

use crate::common::{agent, ask};

/// A model writes a title of one line from the first messages; what it wrote around that is left out.
async fn a_model_writes_the_title(site: Site) {
    let storage = site.open().await;
    let agent = agent(&storage, ScriptedProvider::new([Turn::new().text("At noon.")]));
    let chat = agent.conversation("support/4711").await.unwrap();
    let small = ScriptedProvider::new([]);
    let error = chat.generate_title(&small).await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidInput, "{error}");
    ask(&chat, &format!("When does the train to Oslo go? {}", "x".repeat(100_000))).await;

    let answers = [
        ("\n\n**\u{201c}Trains to Oslo\u{201d}**\nI hope that helps!", "Trains to Oslo".to_owned()),
        ("# \u{1b}[31mTrains", "[31mTrains".to_owned()),
        (&"\u{5927}".repeat(100_000), "\u{5927}".repeat(80)),
    ];
    for (answer, title) in answers {
        small.push(Turn::new().text(answer));
        let written = chat.generate_title(&small).await.unwrap().expect("nobody chose one");
        assert_eq!(written.text, title, "{}", site.name);
        let now = storage.sessions.load(chat.id()).await.unwrap();
        assert_eq!(
            now.attributes.title.as_ref().map(|it| (it.text.as_str(), it.by_user)),
            Some((&*title, false))
        );
    }
    let requests = small.requests();
    let asked = requests[0].messages.iter().map(|message| message.text().into_owned()).collect::<String>();
    assert!(asked.contains("User: When does the train") && asked.contains("Assistant: At noon."), "{asked}");
    assert!(asked.len() < 2_000, "a part of a long message: {}", asked.len());

    for empty in ["", " \n*\n"] {
        small.push(Turn::new().text(empty));
        let error = chat.generate_title(&small).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Provider, "{error}");
    }
    // A person who chooses one while the model writes is the one who is heard.
    let (gate, asked_before) = (Gate::new(), small.requests().len());
    small.push(Turn::new().gate(&gate).text("Trains"));
    let writing = chat.generate_title(&small);
    let choosing = async {
        let asked = async {
            while small.requests().len() < asked_before + 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(60), asked).await.expect("the model is asked");
        chat.set_title("Mine").await.unwrap();
        gate.open();
    };
    let (written, ()) = tokio::join!(writing, choosing);
    assert_eq!(written.unwrap(), None, "{}", site.name);
    let before = small.requests().len();
    chat.set_title("Sunday").await.unwrap();
    assert_eq!(chat.generate_title(&small).await.unwrap(), None, "a person chose one");
    assert_eq!(small.requests().len(), before, "and no model is asked");
    let now = storage.sessions.load(chat.id()).await.unwrap();
    assert_eq!(now.attributes.title.as_ref().map(|title| title.text.as_str()), Some("Sunday"));
}
each_store!(a_model_writes_the_title and files);
